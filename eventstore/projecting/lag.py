"""How far a worker's projection is behind, for the metrics."""

from __future__ import annotations


class Lag:
    """As the worker saw it last: events that wait, and the age of the oldest in seconds."""

    def __init__(self, name: str) -> None:
        self.name: str | None = name
        self.behind = (0, 0.0)
        self.looked = float("-inf")

    def lag(self) -> tuple[int, float]:
        """Return both."""
        return self.behind
