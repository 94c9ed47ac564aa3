"""What is known of each type of event: its model, its schema version, its upcasters.

A type has one model, that of its current version. Data of an older version reaches it through
upcasters, each a pure function from one version to the next; the log itself is never rewritten. A
catalogue is filled once, then frozen: what a type means does not change while the program runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from eventstore import errors
from eventstore.log.catalogue.refusals import refusal
from eventstore.log.events import Json

Upcaster: TypeAlias = Callable[[Json], Json]
"""From one version's data to the next one's; returns new data and leaves the given alone."""

_Model = TypeVar("_Model", bound=type[BaseModel])
_OWN_TYPE: Final = re.compile(r"x\.[a-z0-9_.-]{1,126}")


class AnyJson(RootModel[Any]):
    """Any JSON value, taken as it is."""


@dataclass(frozen=True, slots=True)
class _Kind:
    model: type[BaseModel]
    version: int
    any_json: bool
    upcasters: dict[int, Upcaster] = field(default_factory=dict)


_OWN: Final = _Kind(AnyJson, 1, any_json=True)


class Catalogue:
    """Event types by name; those that begin with ``x.`` are the user's own and carry any JSON."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._frozen = False

    def event(self, event_type: str, *, version: int) -> Callable[[_Model], _Model]:
        """Register the decorated model as what ``event_type`` carries, now at ``version``."""

        def register(model: _Model) -> _Model:
            self._refuse_if_frozen()
            if event_type in self._kinds:
                raise ValueError(f"event type {event_type!r} is registered already")
            if version < 1:
                raise ValueError(f"{event_type}: version {version!r}; schema versions begin at 1")
            self._kinds[event_type] = _Kind(model, version, issubclass(model, AnyJson))
            return model

        return register

    def upcaster(self, event_type: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Register the decorated function as the step from ``from_version`` to the next version."""

        def register(function: Upcaster) -> Upcaster:
            self._refuse_if_frozen()
            kind = self._kinds.get(event_type)
            if kind is None:
                raise ValueError(f"event type {event_type!r} is not registered; register its model first")
            if not 1 <= from_version < kind.version:
                raise ValueError(f"{event_type} is at version {kind.version}, no step from {from_version}")
            if from_version in kind.upcasters:
                raise ValueError(f"{event_type}: the step from version {from_version} is registered already")
            kind.upcasters[from_version] = function
            return function

        return register

    def freeze(self) -> None:
        """Close the catalogue. Every version below the current one must have its upcaster."""
        for event_type, kind in self._kinds.items():
            missing = [v for v in range(1, kind.version) if v not in kind.upcasters]
            if missing:
                raise ValueError(f"{event_type}: no upcaster from version {missing[0]}")
        self._frozen = True

    def check(self, event_type: str, data: Json) -> int:
        """Check data against the current model and return the current schema version.

        The data is read, never rewritten. Types that carry any JSON value are not looked into.

        Raises:
            errors.InvalidEvent: the type is unknown, or the data does not fit.
        """
        kind = self._kind(event_type)
        if not kind.any_json:
            self._validate(event_type, kind, data)
        return kind.version

    def load(self, event_type: str, data: Json) -> BaseModel:
        """Give data of the current version (see ``upcast``) as the type's model.

        Raises:
            errors.InvalidEvent: the type is unknown, or the data does not fit.
        """
        return self._validate(event_type, self._kind(event_type), data)

    def upcast(self, event_type: str, schema_version: int, data: Json) -> Json:
        """Give data recorded at ``schema_version`` in the shape of the current version.

        Raises:
            errors.SchemaOutOfDate: newer code wrote it: version or type are not known here.
        """
        kind = self._find(event_type)
        if kind is None:
            if not isinstance(event_type, str):
                self._refuse_type(event_type)
            raise errors.SchemaOutOfDate(
                f"event type {event_type!r} (schema version {schema_version}) is not known here; "
                "newer code wrote it: upgrade this program"
            )
        if schema_version == kind.version:
            return data
        if schema_version > kind.version:
            raise errors.SchemaOutOfDate(
                f"{event_type} has schema version {schema_version}, known here up to "
                f"{kind.version}; newer code wrote it: upgrade this program"
            )
        if schema_version < 1:
            raise errors.InvalidEvent(
                "schema_version", f"{schema_version!r} of {event_type}; schema versions begin at 1"
            )
        for version in range(schema_version, kind.version):
            data = kind.upcasters[version](data)
        return data

    def knows(self, event_type: str) -> bool:
        """Tell whether the type is of this catalogue, or one of the user's own."""
        return self._find(event_type) is not None

    def types(self) -> tuple[str, ...]:
        """Name every type of the catalogue, sorted; the user's own are not among them."""
        return tuple(sorted(self._kinds))

    def current_version(self, event_type: str) -> int:
        """Give the schema version that is written now.

        Raises:
            errors.InvalidEvent: the type is unknown.
        """
        return self._kind(event_type).version

    def _kind(self, event_type: str) -> _Kind:
        return self._find(event_type) or self._refuse_type(event_type)

    def _find(self, event_type: str) -> _Kind | None:
        try:
            kind = self._kinds.get(event_type)
        except TypeError:  # not even hashable
            return None
        if kind is None and isinstance(event_type, str) and _OWN_TYPE.fullmatch(event_type):
            return _OWN
        return kind

    def _refuse_type(self, event_type: object) -> _Kind:
        shown = errors.describe(event_type)
        if not isinstance(event_type, str):
            raise errors.InvalidEvent("type", f"{shown} should be text such as 'item.appended'")
        if event_type.startswith("x."):
            raise errors.InvalidEvent(
                "type",
                f"{shown} should be 'x.' and at least one of the characters a-z 0-9 _ . -, "
                "at most 128 characters in all",
            )
        near = difflib.get_close_matches(event_type, self._kinds, n=3)
        meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise errors.InvalidEvent("type", f"{shown} is not in the catalogue; {meant}types of your own start with 'x.'")

    def _validate(self, event_type: str, kind: _Kind, data: Json) -> BaseModel:
        try:
            return kind.model.model_validate(data)
        except ValidationError as error:
            raise refusal(event_type, kind.model, data, error) from None

    def _refuse_if_frozen(self) -> None:
        if self._frozen:
            raise RuntimeError("the catalogue is frozen; register in a Catalogue of your own")


CATALOGUE: Final = Catalogue()
"""The catalogue of this product, frozen once the package is imported."""

event = CATALOGUE.event
upcaster = CATALOGUE.upcaster
