"""Import lines: one JSON object a line, each a conversation with the events to append.

A line has ``conversation``, perhaps ``context`` and ``tags``, and exactly one of ``items`` (Responses items),
``messages`` (chat messages), ``steps`` (what agents did, handoffs included) and ``events`` (what an export prints; a
branch has ``fork`` beside them). Everything made here follows from the line alone, so the same line read again gives
the same events. Other keys are ignored and named, but for a slip of the pen.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from eventstore.errors import InvalidEvent, InvalidItem
from eventstore.errors import describe as show
from eventstore.formats.agents_sdk import expand
from eventstore.formats.chat import items_from_messages
from eventstore.formats.steps import events_of_steps
from eventstore.log import catalogue
from eventstore.log.events import ITEM, Event, Json
from eventstore.log.items import describe
from eventstore.log.names import check_event_id, check_name

_Object: TypeAlias = dict[str, Any]

_ABOUT_KEYS: Final = ("conversation", "context", "tags", "fork")
_FORMS: Final = ("items", "messages", "steps", "events")
FORMATS: Final = ("responses", "chat", "nested")
_NEAR: Final = 0.75
_NO_SLIPS: Final = frozenset({"content"})  # near "context", but a word of its own
_TEXT_KEYS: Final = ("subject", "agent", "call_id", "task_id", "run_id", "unique_key")
_EVENT_KEYS: Final = ("type", "schema_version", "data", "metadata", "event_id", *_TEXT_KEYS)
# Where an event once was: exported to be read, not to be written again.
_READ_ONLY: Final = frozenset({"version", "position", "recorded_at", "hash", "tenant", "context", "stream"})


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a branch goes on from; ``first`` is its stream.forked as it was exported, None where that is left out."""

    parent: str
    at: int
    first: Event | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation to import; ``context`` is None where the line names none, ``ignored`` the keys not read.

    ``one_to_one`` says that each entry of the list became one item, in order.
    """

    conversation: str
    context: str | None
    tags: dict[str, str]
    events: list[Event]
    ignored: tuple[str, ...] = ()
    one_to_one: bool = True
    fork: Fork | None = None


def parse(record: Json, format: str | None = None) -> Conversation:  # noqa: A002 - the name of the option
    """Read one line, already decoded; ``format`` is one of ``FORMATS``, or None where the key says it.

    Raises:
        InvalidName: what should be a name, or an event's id, can't be one.
        InvalidItem: anything else; the path is relative to the line, like ``steps[4].kind``.
        SchemaOutOfDate: an exported event was written by newer code.
    """
    if not isinstance(record, dict):
        raise InvalidItem("line", f"{show(record)} should be an object")
    ignored = _ignored(record)
    if "conversation" not in record:
        raise InvalidItem("conversation", "missing; a line needs the conversation's name")
    conversation = check_name("conversation", record["conversation"])
    context = record.get("context")
    if context is not None:
        context = check_name("context", context)
    tags = _tags(record.get("tags"))
    form = _form(record)
    if not isinstance(record[form], list):
        raise InvalidItem(form, f"{show(record[form])} should be a list")
    one_to_one = True
    if form == "steps":
        events = events_of_steps(record, conversation, context or conversation)
    elif form == "events":
        events = [_event(f"events[{index}]", each) for index, each in enumerate(record["events"])]
    else:
        items, one_to_one = _items(form, record[form], format)
        events = [_item(item) for item in items]
    fork = _fork(record.get("fork"))
    if events and events[0].type == "stream.forked":
        if fork is None:
            raise InvalidItem("fork", "missing; a line whose events begin with stream.forked needs parent and at")
        fork = Fork(fork.parent, fork.at, events.pop(0))
    for index, event in enumerate(events):
        if event.type == "stream.forked":
            raise InvalidItem(f"{form}[{index}].type", "stream.forked is a branch's first event, and there only once")
    return Conversation(conversation, context, tags, events, ignored, one_to_one, fork)


def _ignored(record: _Object) -> tuple[str, ...]:
    """Give the keys that are not read; refuse one that looks like a key which the line lacks."""
    lacking = [key for key in _ABOUT_KEYS if key not in record]
    if not any(form in record for form in _FORMS):
        lacking += _FORMS
    ignored = [key for key in record if not (key in _ABOUT_KEYS or key in _FORMS)]
    if "steps" in record and "question" in ignored:  # the goal of its handoffs
        ignored.remove("question")
    for key in ignored:
        near = difflib.get_close_matches(key.lower(), lacking, n=1, cutoff=_NEAR)
        if near and key.lower() not in _NO_SLIPS:
            raise InvalidItem(key, f"unknown key; did you mean {near[0]!r}?")
    return tuple(ignored)


def _form(record: _Object) -> str:
    given = [form for form in _FORMS if form in record]
    if not given:
        raise InvalidItem("items", f"missing; a line needs one of {', '.join(_FORMS)}")
    if len(given) > 1:
        raise InvalidItem(given[1], f"given beside {given[0]}; a line has one of them")
    return given[0]


def _tags(tags: Json) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, dict):
        raise InvalidItem("tags", f"{show(tags)} should be an object")
    for key, value in tags.items():
        if not isinstance(value, str):
            raise InvalidItem(f"tags.{key}", f"{show(value)} should be text")
    return tags


def _fork(fork: Json) -> Fork | None:
    if fork is None:
        return None
    if not isinstance(fork, dict) or set(fork) != {"parent", "at"}:
        raise InvalidItem("fork", f'{show(fork)} should be {{"parent": name, "at": version}}')
    if type(fork["at"]) is not int or fork["at"] < 0:
        raise InvalidItem("fork.at", f"{show(fork['at'])} should be a version, 0 or more")
    return Fork(check_name("fork.parent", fork["parent"]), fork["at"], None)


def _item(item: Json) -> Event:
    subject, call_id = describe(item)
    return Event(type=ITEM, data=item, subject=subject, call_id=call_id)


def _items(form: str, given: list[Json], format: str | None) -> tuple[list[Json], bool]:  # noqa: A002
    """Give the items of a list, and whether they are its entries."""
    chat = form == "messages" if format in (None, "nested") else format == "chat"
    items = items_from_messages(given, form) if chat else given
    if format == "nested":
        return expand(items), False
    return items, not chat


def _event(path: str, given: Json) -> Event:
    if not isinstance(given, dict):
        raise InvalidItem(path, f"{show(given)} should be an object")
    for key in given:
        if key not in _EVENT_KEYS and key not in _READ_ONLY:
            near = difflib.get_close_matches(key, _EVENT_KEYS, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_EVENT_KEYS)}"
            raise InvalidItem(f"{path}.{key}", f"unknown key; {meant}")
    for key in ("type", "data"):
        if key not in given:
            raise InvalidItem(f"{path}.{key}", "missing; an event needs it")
    for key in _TEXT_KEYS:
        if given.get(key) is not None and not isinstance(given[key], str):
            raise InvalidItem(f"{path}.{key}", f"{show(given[key])} should be text or null")
    metadata, event_id = given.get("metadata"), given.get("event_id")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidItem(f"{path}.metadata", f"{show(metadata)} should be an object or null")
    return Event(
        type=given["type"],
        data=_data(path, given),
        metadata=metadata,
        event_id=None if event_id is None else check_event_id(event_id, f"{path}.event_id"),
        **{key: given.get(key) for key in _TEXT_KEYS},
    )


def _data(path: str, given: _Object) -> Json:
    """Give the event's data at the current schema version, which is the one that is appended."""
    event_type, version, data = given["type"], given.get("schema_version"), given["data"]
    if version is not None and type(version) is not int:
        raise InvalidEvent(f"{path}.schema_version", f"{show(version)} should be an integer")
    try:
        if version is not None:
            data = catalogue.upcast(event_type, version, data)
        catalogue.check(event_type, data)
    except InvalidEvent as error:
        raise InvalidEvent(f"{path}.{error.path}", error.reason) from None
    return data
