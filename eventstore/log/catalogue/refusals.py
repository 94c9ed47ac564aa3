"""How a failed validation is told: a path into the data, the value there, what would be right.

Of several faults a misspelt field is told first: a missing field beside it is the same fault. Where
a value may be text or an object and is neither, text is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from eventstore import errors
from eventstore.log.events import Json

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOULD_BE: Mapping[str, str] = {
    "model_type": "should be an object",
    "dict_type": "should be an object",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "is_instance_of": "should be text",
    "string_type": "should be text",
    "int_type": "should be an integer",
    "float_type": "should be a number",
    "bool_type": "should be true or false",
    "too_short": "should have at least {min_length} item(s)",
    "too_long": "should have at most {max_length} item(s)",
}


def refusal(event_type: str, model: type[BaseModel], data: Json, error: ValidationError) -> errors.InvalidEvent:
    """Tell the foremost fault of a failed validation."""
    fault = min(error.errors(include_url=False), key=_rank)
    return errors.InvalidEvent(_path(data, fault), _reason(event_type, model, fault))


def _rank(fault: ErrorDetails) -> int:
    return {"extra_forbidden": 0, "model_type": 2}.get(fault["type"], 1)


def _path(data: Json, fault: ErrorDetails) -> str:
    """Keep those steps that lead into the data: pydantic also names the member of a union."""
    path, here = "data", data
    for step in fault["loc"]:
        if _leads_on(here, step):
            here = here[step]
        elif fault["type"] != "missing" or step != fault["loc"][-1]:
            continue
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if step.isidentifier() else f"[{step!r}]"
    return path


def _leads_on(here: Json, step: int | str) -> bool:
    if isinstance(step, int):
        return isinstance(here, (list, tuple)) and step < len(here)
    return isinstance(here, dict) and step in here


def _reason(event_type: str, model: type[BaseModel], fault: ErrorDetails) -> str:
    kind, shown = fault["type"], errors.describe(fault["input"])
    if kind == "missing":
        return f"missing; {event_type} needs it"
    if kind == "extra_forbidden":
        known = _fields_at(model, fault["loc"][:-1])
        near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(known)}"
        return f"unknown field with the value {shown}; {meant}"
    if kind == "value_error":
        return f"{shown} {fault['ctx']['error']}"
    if kind in _SHOULD_BE:
        return f"{shown} {_SHOULD_BE[kind].format_map(fault.get('ctx', {}))}"
    if fault["msg"].startswith("Input should"):
        return f"{shown} {fault['msg'].removeprefix('Input ')}"
    return f"{shown}: {fault['msg']}"


def _fields_at(model: type[BaseModel], steps: tuple[int | str, ...]) -> list[str]:
    models = [model]
    for step in steps:
        found = [
            inner
            for outer in models
            if step in outer.model_fields
            for inner in _models_in(outer.model_fields[str(step)].annotation)
        ]
        models = found or models
    return list(dict.fromkeys(name for each in models for name in each.model_fields))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
