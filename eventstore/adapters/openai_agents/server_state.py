"""One history from one place: the session's, or the provider's."""

from __future__ import annotations

from eventstore.errors import ServerStateConflict


def refuse_server_state(
    session_id: str,
    *,
    conversation_id: str | None = None,
    previous_response_id: str | None = None,
    auto_previous_response_id: bool = False,
) -> None:
    """Refuse what makes the provider put its own history before the session's, as the SDK does.

    Raises:
        ServerStateConflict: one of them is given.
    """
    given = {
        "conversation_id": conversation_id,
        "previous_response_id": previous_response_id,
        "auto_previous_response_id": auto_previous_response_id or None,
    }
    told = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    if told:
        raise ServerStateConflict(
            f"session {session_id!r} puts its history before the input, and {told} tells the provider to put what it "
            "holds there too: the model would see it twice. Leave that out; or run without session=, and record "
            "with session.add_items() and session.store_run_usage()"
        )
