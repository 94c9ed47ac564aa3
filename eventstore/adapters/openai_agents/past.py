"""A session as it was: to read, to run an agent over without storing, or to fork from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from agents import RunContextWrapper, SessionSettings, TResponseInputItem

from eventstore.errors import InvalidItem

if TYPE_CHECKING:
    from eventstore.adapters.openai_agents.session import ConvstoreSession


class PastSession:
    """The session as of a version or a moment. Whatever would write is refused, by name."""

    session_settings: SessionSettings | None

    def __init__(self, session: ConvstoreSession, at: int | datetime) -> None:
        self._session = session
        self.at = at
        self.session_id = session.session_id
        self.session_settings = session.session_settings

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the items as of then, cut as the session's are."""
        return await self._session.read(limit, at=self.at)

    async def add_items(self, items: list[Any], *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Refuse to add."""
        if items:
            self._refuse("add_items")

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Refuse to pop."""
        self._refuse("pop_item")

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Refuse to clear."""
        self._refuse("clear_session")

    def _refuse(self, what: str) -> NoReturn:
        at = self.at if isinstance(self.at, int) else self.at.isoformat()
        raise InvalidItem(
            what,
            f"session {self.session_id!r} as of {at} can only be read; to go on from there, fork it: "
            "await session.fork(new_id, at=version)",
        )
