"""What can go wrong, one class a cause.

Each error names the value that was wrong and what would be right, and carries the parts as attributes.
An append that raises one of these has written nothing, with one exception that says so itself:
``StoreUnavailable`` with ``outcome="unknown"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal


class ConvstoreError(Exception):
    """Any error of this product."""


# --- appending -----------------------------------------------------------------------------------


class VersionConflict(ConvstoreError):
    """The stream is not at the version that the caller expected."""

    def __init__(self, expected: object, actual: int, *, stream: str = "") -> None:
        where = f"stream {stream!r}" if stream else "the stream"
        state = f"is at version {actual}" if actual else "is at version 0, it does not exist"
        if isinstance(expected, int) and 0 < expected < actual:
            advice = f"read what came since and append again with expected={actual}"
        elif isinstance(expected, int) and expected > actual:
            advice = "that version has never been there; is it another stream's?"
        elif actual:
            advice = "it was created meanwhile, or before: read it first"
        else:
            advice = "create it with expected=NO_STREAM or ANY"
        super().__init__(f"{where} {state}, expected {expected}; {advice}")
        self.expected = expected
        self.actual = actual
        self.stream = stream


class IdempotencyConflict(ConvstoreError):
    """The key or the ids are known, but this is not the append that they stand for."""

    def __init__(self, key: object, stored: object, given: object) -> None:
        super().__init__(
            f"{key} was used before for another append: stored {stored}, given {given}; "
            "repeat the first call exactly, or choose a new key"
        )
        self.key = key
        self.stored = stored
        self.given = given


class UniqueKeyConflict(ConvstoreError):
    """Another event of the context holds this ``unique_key``."""

    def __init__(self, unique_key: str, context: str) -> None:
        super().__init__(
            f"unique_key {unique_key!r} is taken by another event in context {context!r}; "
            "what it guards has happened already"
        )
        self.unique_key = unique_key
        self.context = context


class StreamNotFound(ConvstoreError):
    """No stream of that name in the tenant."""

    def __init__(self, stream: str, tenant: str) -> None:
        super().__init__(f"no stream {stream!r} in tenant {tenant!r}; a first append creates it")
        self.stream = stream
        self.tenant = tenant


class StreamExists(ConvstoreError):
    """The name is taken."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(f"stream {stream!r} exists: {reason}; choose another name")
        self.stream = stream
        self.reason = reason


class StreamClosed(ConvstoreError):
    """The stream was closed by ``stream.closed``; nothing is appended after that."""

    def __init__(self, stream: str, version: int) -> None:
        super().__init__(f"stream {stream!r} was closed at version {version}; go on in another stream")
        self.stream = stream
        self.version = version


class ContextMismatch(ConvstoreError):
    """A stream's context is fixed by its first append."""

    def __init__(self, stream: str, stored: str, given: str) -> None:
        super().__init__(
            f"stream {stream!r} belongs to context {stored!r}, not {given!r}; leave context= out or give {stored!r}"
        )
        self.stream = stream
        self.stored = stored
        self.given = given


class InvalidItem(ConvstoreError):
    """A value that the log can't hold as it is, found before anything was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class InvalidName(ConvstoreError):
    """A name, key or id that can't be used."""

    def __init__(self, what: str, value: object, reason: str) -> None:
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:60] + "…" + shown[-10:]
        super().__init__(f"{what} {shown}: {reason}")
        self.what = what
        self.value = value
        self.reason = reason


class InvalidEvent(InvalidItem):
    """An event whose type or data does not fit the catalogue."""


class ForkPointBeyondHead(ConvstoreError):
    """A fork at a version that the parent does not have."""

    def __init__(self, stream: str, at: object, head: int) -> None:
        has = f"versions 1 to {head}" if isinstance(at, int) else f"{head} items"
        super().__init__(f"stream {stream!r} has {has}, so it can't fork at {at}")
        self.stream = stream
        self.at = at
        self.head = head


# --- conversations, handoffs, effects ------------------------------------------------------------


class CompactionConflict(ConvstoreError):
    """Another control event came while the summary was made."""


class HandoffRefused(ConvstoreError):
    """A handoff that may not go on, with the field that forbids it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class TaskClosed(ConvstoreError):
    """The task is in a terminal state: nothing is written that names it."""

    def __init__(self, task_id: str, status: str, context: str) -> None:
        super().__init__(
            f"task {task_id!r} of context {context!r} is {status}, and that is final; "
            f"open another one with follows={task_id!r}, or leave task_id= out"
        )
        self.task_id = task_id
        self.status = status
        self.context = context


class TaskExists(ConvstoreError):
    """A task of this id was opened in the context before, with other facts."""

    def __init__(self, task_id: str, context: str, stored: object, given: object) -> None:
        super().__init__(
            f"task {task_id!r} of context {context!r} was opened before: stored {stored}, given {given}; "
            f"choose another id, perhaps with follows={task_id!r}"
        )
        self.task_id = task_id
        self.context = context
        self.stored = stored
        self.given = given


class TaskNotFound(ConvstoreError):
    """No task of that id was opened in the context."""

    def __init__(self, task_id: str, context: str) -> None:
        super().__init__(
            f"no task {task_id!r} was opened in context {context!r}; open it first: tasks.open({task_id!r}, …)"
        )
        self.task_id = task_id
        self.context = context


class TaskStatusConflict(ConvstoreError):
    """The task is not in the state that the caller expected."""

    def __init__(self, task_id: str, expected: str, actual: str, context: str) -> None:
        super().__init__(
            f"task {task_id!r} of context {context!r} is {actual}, expected {expected}; "
            f"decide again, with expected={actual!r} or without"
        )
        self.task_id = task_id
        self.expected = expected
        self.actual = actual
        self.context = context


class ArtifactConflict(ConvstoreError):
    """The artifact's version was published before, and it was another: ``field`` tells in what, mostly its digest."""

    def __init__(self, uri: str, version: int, field: str, stored: object, given: object, context: str) -> None:
        super().__init__(
            f"artifact {uri!r} version {version} of context {context!r} was published with {field} {stored!r}, "
            f"given {given!r}; a version never changes: publish the next one"
        )
        self.uri = uri
        self.version = version
        self.field = field
        self.stored = stored
        self.given = given
        self.context = context


class EffectPending(ConvstoreError):
    """Another caller runs this effect now. ``age`` and ``lease`` are seconds, by the server's clock."""

    def __init__(self, key: str, age: float, by: str, *, tool: str = "", lease: float = 0.0, attempt: int = 1) -> None:
        super().__init__(
            f"{_effect(key, tool)} has been running for {age:.1f} s of its lease of {lease:g} s, attempt {attempt}, "
            f"by {by!r}; ask again, it has an outcome or can be resolved {max(lease - age, 0):.1f} s from now"
        )
        self.key = key
        self.age = age
        self.by = by
        self.tool = tool
        self.lease = lease
        self.attempt = attempt


class EffectIndeterminate(ConvstoreError):
    """Whether the effect happened is not known, or not recorded; a person or a look-up has to say.

    ``happened`` is True or False where its caller knows that much, else None; ``result`` is what the tool gave then.
    """

    def __init__(
        self,
        key: str,
        tool: str,
        attempt: int,
        by: str,
        reason: str,
        *,
        happened: bool | None = None,
        result: Any = None,
    ) -> None:
        known = {
            None: "it is not known whether it happened",
            True: "it happened, but its result is not recorded",
            False: "it did not happen, but that is not recorded",
        }[happened]
        look = "look where the tool acts, then call" if happened is None else "call"
        says = "True or False" if happened is None else str(happened)
        super().__init__(
            f"{_effect(key, tool)}, attempt {attempt}, by {by!r}: {known} ({reason}); it is not run again: "
            f"{look} effects.resolve({key!r}, succeeded={says})"
        )
        self.key = key
        self.tool = tool
        self.attempt = attempt
        self.by = by
        self.reason = reason
        self.happened = happened
        self.result = result


class EffectCompensated(ConvstoreError):
    """The effect was undone; its key is spent. ``result`` is what undoing it gave."""

    def __init__(self, key: str, tool: str, by: str, result: Any = None) -> None:
        super().__init__(
            f"{_effect(key, tool)} was undone, by {by!r}: {describe(result)}; its key is spent, "
            "to do it once more choose a new one"
        )
        self.key = key
        self.tool = tool
        self.by = by
        self.result = result


class EffectRefused(ConvstoreError):
    """What was asked of an effect can't be, in the state that it is in."""

    def __init__(self, key: str, reason: str, *, tool: str = "") -> None:
        super().__init__(f"{_effect(key, tool)}: {reason}")
        self.key = key
        self.tool = tool
        self.reason = reason


class EffectFailed(ConvstoreError):
    """To be raised by a call that knows for certain that the effect did not happen: its key is free again."""

    def __init__(self, error: Any = "it did not happen") -> None:
        super().__init__(str(error))
        self.error = error


def _effect(key: str, tool: str) -> str:
    return f"effect {describe(key)} (tool {tool!r})" if tool else f"effect {describe(key)}"


class ServerStateConflict(ConvstoreError):
    """Two sources of one history were asked for at once."""


class CursorInvalid(ConvstoreError):
    """A feed cursor of another incarnation, beyond the head, or not a cursor."""

    def __init__(self, cursor: str | None, reason: str) -> None:
        super().__init__(f"cursor {cursor!r}: {reason}")
        self.cursor = cursor
        self.reason = reason


class EventUndecodable(ConvstoreError):
    """An event of the log that this code can't read: its data is broken, or newer code wrote it."""

    def __init__(self, stream: str | None, version: int, kind: str, reason: str) -> None:
        super().__init__(f"version {version} of stream {stream!r}, of type {kind!r}, can't be decoded: {reason}")
        self.stream = stream
        self.version = version
        self.type = kind
        self.reason = reason


# --- projections -----------------------------------------------------------------------------------


class ProjectionUnknown(ConvstoreError):
    """Nobody has run a projection of this name, or this code has none."""

    def __init__(self, name: str, known: Sequence[str] = (), reason: str = "") -> None:
        there = f"; there are {', '.join(known)}" if known else ""
        super().__init__(f"projection {name!r}: {reason or 'there is none of this name'}{there}")
        self.name = name
        self.known = tuple(known)


class ProjectionBehind(ConvstoreError, TimeoutError):
    """A projection did not come to a position in time, or has stopped before it."""

    def __init__(self, name: str, position: int, at: int, reason: str) -> None:
        super().__init__(f"projection {name!r} is at position {at}, not yet at {position}: {reason}")
        self.name = name
        self.position = position
        self.at = at
        self.reason = reason


class ProjectionRefused(ConvstoreError):
    """A projection whose tables or views can't be made, or that would take those of another one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"projection {name!r}: {reason}")
        self.name = name
        self.reason = reason


# --- the store -----------------------------------------------------------------------------------


class IsolationLevelError(ConvstoreError):
    """A call inside a transaction whose isolation level can't serve it."""


class TenantRequired(ConvstoreError):
    """The login may not act for this tenant, or none was given."""

    def __init__(self, tenant: str | None, login: str) -> None:
        whose, value = ("all tenants", "NULL") if tenant is None else (f"tenant {tenant!r}", f"'{tenant}'")
        super().__init__(
            f"login {login!r} is not bound to {whose}; name another (tenant=, --tenant, CONVSTORE_TENANT), "
            f"or have the owner run: SELECT convstore.bind_login('{login}', {value})"
        )
        self.tenant = tenant
        self.login = login


class NotPermitted(ConvstoreError):
    """The login's role lacks the right for this call."""

    def __init__(self, login: str, action: str, role: str) -> None:
        super().__init__(f"login {login!r} may not {action}; it needs the role {role}: GRANT {role} TO {login}")
        self.login = login
        self.action = action
        self.role = role


class TransactionAborted(ConvstoreError):
    """A statement of the block failed, and its error was caught: nothing of the block can be committed."""

    def __init__(self) -> None:
        super().__init__(
            "a statement of the transaction failed, so the server can commit nothing of it; nothing was written. "
            "Let the error end the block, or try the statement in a nested transaction()"
        )


class UnsafeSetting(ConvstoreError):
    """A setting of the connection under which the log's promises do not hold."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class SequencesUnsafe(ConvstoreError):
    """Positions or ids could be drawn twice or out of order, as after a restore: nothing is read or written."""

    def __init__(self, faults: Sequence[str], remedy: str = "run: convstore repair sequence") -> None:
        super().__init__(f"{'; '.join(faults)}; {remedy}")
        self.faults = tuple(faults)
        self.remedy = remedy


class SchemaOutOfDate(ConvstoreError):
    """The database is not migrated, or newer than this code."""


class MigrationFailed(ConvstoreError):
    """A migration was refused or failed; the database is as it was before it."""


class EmbeddedUnavailable(ConvstoreError):
    """The embedded Postgres can't be had or can't start; the text says why and what to do."""


class StoreUnavailable(ConvstoreError):
    """The server could not be reached, or the connection was lost and did not come back in time.

    ``outcome`` is ``"not_done"`` where nothing was written for certain, ``"unknown"`` where a COMMIT may have
    gone through: the same call with the same key gives one copy either way.
    """

    def __init__(self, reason: str, outcome: Literal["not_done", "unknown"] = "not_done") -> None:
        tail = (
            "; whether it was written is unknown: the same call with the same key= is safe"
            if outcome == "unknown"
            else "; nothing was done"
        )
        super().__init__(reason + tail)
        self.reason = reason
        self.outcome = outcome


def describe(value: Any, limit: int = 60) -> str:
    """Show a value in an error, shortened to ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
