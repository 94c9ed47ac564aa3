"""The steps of the demo, told one by one with the time that each took, and who follows the log meanwhile."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

from eventstore import EventStore, RecordedEvent
from eventstore.adapters.cli import output


class Story:
    """The steps so far."""

    def __init__(self, *, quiet: bool) -> None:
        self.steps: list[dict[str, Any]] = []
        self.quiet = quiet
        self._since = time.perf_counter()

    @property
    def ok(self) -> bool:
        """Whether everything went as promised."""
        return all(step["ok"] for step in self.steps)

    def begin(self) -> None:
        """Start the clock of the next step."""
        self._since = time.perf_counter()

    def tell(self, step: str, text: str, *, ok: bool = True) -> None:
        """Stop the clock and say what was seen."""
        seconds = time.perf_counter() - self._since
        self.steps.append({"step": step, "text": text, "ok": ok, "seconds": round(seconds, 6)})
        if not self.quiet:
            took = f"{seconds * 1000:8.1f} ms" if seconds < 1 else f"{seconds:8.2f} s "
            output.say((took, "dim"), (f"  {step:<9}", "bold green" if ok else "bold red"), f" {output.line(text)}")
        self.begin()

    def show(self, title: str) -> None:
        """Say what is shown below, where anything is shown."""
        if not self.quiet:
            output.say((title, "bold"))


class Follower:
    """A subscriber in a thread of its own, from now on."""

    def __init__(self, store: EventStore) -> None:
        self.events: list[RecordedEvent] = []
        self.delays: list[float] = []
        self._feed = store.subscribe(store.feed_state().cursor)
        self._thread = threading.Thread(target=self._run, name="demo-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for event in self._feed:
            self.delays.append(time.time() - event.recorded_at.timestamp())
            self.events.append(event)

    def tell(self, story: Story, store: EventStore, names: list[str], timeout: float = 10.0) -> None:
        """Wait until it has seen what the streams hold, end it, and compare."""
        story.begin()
        wanted = {(event.stream, event.version) for name in names for event in store.conversation(name).events()}
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not wanted <= {(each.stream, each.version) for each in self.events}:
            self._thread.join(0.005)
        self._feed.close()
        self._thread.join(timeout)
        seen = [event for event in self.events if event.stream in names]
        in_order = all(a.position < b.position for a, b in pairwise(seen))
        last: dict[str, int] = {}
        versions = True
        for event in seen:
            versions = versions and event.version == last.get(event.stream, event.version - 1) + 1
            last[event.stream] = event.version
        ok = in_order and versions and {(event.stream, event.version) for event in seen} == wanted
        delays = sorted(self.delays) or [0.0]
        text = (
            f"a subscriber beside all this saw {len(seen)} of {output.events(len(wanted))}, in order of position, "
            f"each stream in order of version: {ok}; half of them within {delays[len(delays) // 2] * 1000:.1f} ms"
        )
        story.tell("follow", text, ok=ok)
