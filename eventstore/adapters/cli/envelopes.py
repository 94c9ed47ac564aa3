"""Two handoffs beside each other: their envelopes, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventstore import EventStore
from eventstore.adapters.cli import exits, output
from eventstore.adapters.cli.options import Options
from eventstore.adapters.cli.reading import directory
from projections.envelopes import differences


def offered(store: EventStore, name: str) -> Mapping[str, Any]:
    """Give the envelope of a handoff by its id, or by STREAM/ID; empty where there is none, or a stream."""
    if store.conversation(name).head():
        return {}
    stream, _, handoff_id = name.rpartition("/")
    if stream and store.conversation(stream).head():
        return _envelope(store, stream, handoff_id)
    for each in directory(store, None):
        found = _envelope(store, each.name, name)
        if found:
            return found
    return {}


def _envelope(store: EventStore, stream: str, handoff_id: str) -> Mapping[str, Any]:
    for handoff in store.conversation(stream).handoffs.list():
        if handoff.handoff_id == handoff_id:
            return handoff.envelope
    return {}


def compare(to: Options, one: str, other: str, mine: Mapping[str, Any], its: Mapping[str, Any]) -> int:
    """Say how two envelopes differ; 1 where they do."""
    found = differences(mine, its)
    if to.json:
        fields = [
            {
                "field": each.field,
                "a": each.one,
                "b": each.other,
                "removed": list(each.removed),
                "added": list(each.added),
            }
            for each in found
        ]
        output.say_json({"same": not found, "a": one, "b": other, "fields": fields})
        return exits.NO if found else 0
    if not found:
        output.say("the envelopes are equal, field by field")
    for each in found:
        output.say((output.line(each.field), "bold"))
        if each.removed or each.added:
            for sign, values in (("-", each.removed), ("+", each.added)):
                for value in values:
                    output.say(f"  {sign} {output.visible(output.compact(value))}")
        else:
            output.say(f"  - {output.visible(output.compact(each.one))}")
            output.say(f"  + {output.visible(output.compact(each.other))}")
    return exits.NO if found else 0
