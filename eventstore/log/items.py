"""What the log notes of an item, so that it can be found without looking into its data."""

from __future__ import annotations

from eventstore.log.events import Json


def describe(item: Json) -> tuple[str | None, str | None]:
    """Give an item's subject (its ``id``) and its ``call_id``, each None where there is none."""
    if not isinstance(item, dict):
        return None, None
    subject = item.get("id")
    call_id = item.get("call_id")
    return (
        subject if isinstance(subject, str) and subject else None,
        call_id if isinstance(call_id, str) else None,
    )
