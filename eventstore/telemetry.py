"""What the store says about itself: Prometheus metrics and structured logs.

Nothing is registered or configured at import. Metrics go to the registry that a store is opened with, or to one of
its own; logs go through the standard library's ``convstore`` logger, so the application decides what shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_known: WeakKeyDictionary[CollectorRegistry, Telemetry] = WeakKeyDictionary()


class Pool(Protocol):
    """A connection pool, as far as it is measured."""

    def get_stats(self) -> dict[str, int]:
        """Return psycopg-pool's statistics."""


class Reader(Protocol):
    """A subscription with a name, as far as it is measured."""

    name: str | None

    def lag(self) -> tuple[int, float]:
        """Return how many events it is behind, and the age of the oldest in seconds."""


class Feed(Protocol):
    """The state of the feed, as far as it is shown."""

    @property
    def open_writers(self) -> int | None:
        """Transactions in flight that appended."""

    @property
    def blocked_seconds(self) -> float:
        """Age of the one that holds the feed back."""


class Telemetry(Collector):
    """The store's own metrics. Stores that share a registry share these."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.append_seconds = Histogram(
            "convstore_append_seconds",
            "Time of one append, retries included",
            registry=registry,
            buckets=(
                0.0005,
                0.001,
                0.002,
                0.005,
                0.01,
                0.02,
                0.05,
                0.1,
                0.25,
                0.5,
                1,
                2.5,
                5,
                10,
                30,
            ),
        )
        self.append_events = Histogram(
            "convstore_append_events",
            "Events of one append",
            registry=registry,
            buckets=(1, 2, 5, 10, 20, 50, 100, 1000, 10000),
        )
        self.append_set_appends = Histogram(
            "convstore_append_set_appends",
            "Appends that went together in one call of an async store",
            registry=registry,
            buckets=(2, 4, 8, 16, 32, 64),
        )
        self.appended = Counter("convstore_appended_events_total", "Events written", registry=registry)
        self.repeats = Counter("convstore_append_repeats_total", "Appends that the log held already", registry=registry)
        self.conflicts = Counter(
            "convstore_append_conflicts_total",
            "Appends refused by the log",
            ["reason"],
            registry=registry,
        )
        self.retries = Counter("convstore_retries_total", "Calls sent again after a lost connection", registry=registry)
        self.forks = Counter("convstore_forks_total", "Branches made", registry=registry)
        self.pools: WeakSet[Pool] = WeakSet()
        self.readers: WeakSet[Reader] = WeakSet()
        self._state: Callable[[], Feed] | None = None
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Sum over the pools of the stores that are open, when Prometheus asks."""
        stats = [pool.get_stats() for pool in list(self.pools)]
        connections = GaugeMetricFamily("convstore_pool_connections", "Connections by state", labels=["state"])
        idle = sum(s.get("pool_available", 0) for s in stats)
        connections.add_metric(["idle"], idle)
        connections.add_metric(["used"], sum(s.get("pool_size", 0) for s in stats) - idle)
        yield connections
        waiting = sum(s.get("requests_waiting", 0) for s in stats)
        yield GaugeMetricFamily("convstore_pool_waiting", "Calls that wait for a connection", value=waiting)
        yield from self._lags()
        if self._state is not None:
            yield from _feed(self._state)

    def _lags(self) -> Iterator[Metric]:
        """Give the lag of each name: of readers with one name, that of the one that is behind most."""
        events = GaugeMetricFamily("convstore_feed_lag_events", "Events not yet read", labels=["reader"])
        seconds = GaugeMetricFamily("convstore_feed_lag_seconds", "Age of the oldest of them", labels=["reader"])
        lags: dict[str, tuple[int, float]] = {}
        for reader in list(self.readers):
            if reader.name is not None:
                n, age = reader.lag()
                most, oldest = lags.get(reader.name, (0, 0.0))
                lags[reader.name] = max(n, most), max(age, oldest)
        for name, (n, age) in lags.items():
            events.add_metric([name], n)
            seconds.add_metric([name], age)
        yield events
        yield seconds

    def observe_feed(self, state: Callable[[], Feed]) -> None:
        """Have each scrape ask ``state``, such as ``lambda: store.feed_state(all_tenants=True)``, for the writers.

        A scrape at which it raises leaves these metrics out.
        """
        self._state = state

    @classmethod
    def of(cls, registry: CollectorRegistry | None) -> Telemetry:
        """Return the metrics of a registry; a new registry of their own where there is none."""
        if registry is None:
            return cls(CollectorRegistry())
        telemetry = _known.get(registry)
        if telemetry is None:
            telemetry = _known[registry] = cls(registry)
        return telemetry


def _feed(state: Callable[[], Feed]) -> Iterator[Metric]:
    try:
        feed = state()
    except Exception as e:  # noqa: BLE001 - whatever it says, the other metrics are to be had
        logger().warning("the feed's state is missing from the metrics", error=str(e))
        return
    if feed.open_writers is not None:
        text = "Transactions in flight that appended"
        yield GaugeMetricFamily("convstore_feed_open_writers", text, value=feed.open_writers)
    text = "Age of the transaction that holds the feed back"
    yield GaugeMetricFamily("convstore_feed_blocked_seconds", text, value=feed.blocked_seconds)


def logger(**bound: Any) -> structlog.stdlib.BoundLogger:
    """Return the product's logger with ``bound`` on every line."""
    wrapped: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger("convstore"),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(),
        ],
        **bound,
    )
    return wrapped
