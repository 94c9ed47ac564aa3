"""What the store says about itself."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from eventstore import EventStore
from eventstore.errors import IdempotencyConflict, VersionConflict


def test_appends_repeats_conflicts_and_connections_are_counted(url: str) -> None:
    registry = CollectorRegistry()
    with EventStore.open(url, registry=registry) as store, EventStore.open(url, registry=registry) as other:
        chat = store.conversation("a")
        chat.append([1, 2, 3], key="k")
        other.conversation("a").append([1, 2, 3], key="k")
        with pytest.raises(VersionConflict):
            chat.append([4], expected=1)
        with pytest.raises(IdempotencyConflict):
            chat.append([4], key="k")

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        assert value("convstore_appended_events_total") == 3
        assert value("convstore_append_events_count") == 1
        assert value("convstore_append_events_sum") == 3
        assert value("convstore_append_repeats_total") == 1
        assert value("convstore_append_conflicts_total", reason="VersionConflict") == 1
        assert value("convstore_append_conflicts_total", reason="IdempotencyConflict") == 1
        assert value("convstore_append_seconds_count") == 4
        connections = [value("convstore_pool_connections", state=state) for state in ("idle", "used")]
        assert None not in connections
        assert sum(v for v in connections if v is not None) >= 2
        assert value("convstore_pool_waiting") == 0


def test_a_store_without_a_registry_has_one_of_its_own(store: EventStore, url: str) -> None:
    store.conversation("a").append([1])
    with EventStore.open(url) as other:
        assert other.telemetry.registry is not store.telemetry.registry
        assert store.telemetry.registry.get_sample_value("convstore_appended_events_total") == 1
        assert other.telemetry.registry.get_sample_value("convstore_appended_events_total") == 0


def test_importing_registers_and_configures_nothing() -> None:
    script = (
        "import logging, prometheus_client, structlog, threading, eventstore\n"
        "names = [m.name for m in prometheus_client.REGISTRY.collect()]\n"
        "assert not [n for n in names if n.startswith('convstore')], names\n"
        "assert not structlog.is_configured()\n"
        "assert not logging.getLogger('convstore').handlers and not logging.getLogger().handlers\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_refusal_is_logged_with_stream_context_and_key(store: EventStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "convstore")
    chat = store.conversation("support-42", context="order-7")
    chat.append([1], key="first")
    with pytest.raises(IdempotencyConflict):
        chat.append([2], key="first")
    (line,) = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    for bound in ("stream=support-42", "context=order-7", "key=first"):
        assert bound in line
