"""What is wrong with the parameters that somebody has given to a constructor, by its signature and its annotations."""

from __future__ import annotations

import inspect
import reprlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from turnwise.suggestions import meant


def require_known(constructor: Callable[..., object], parameters: Mapping[str, Any]) -> None:
    """Raise ValueError for a name that the constructor does not take, with the nearest that it does."""
    known = inspect.signature(constructor).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for name in parameters:
        if name not in known:
            listed = f"known are {', '.join(known)}" if known else "there are none"
            raise ValueError(f"{name} is no parameter: {listed}{meant(name, known)}")


def mistyped(constructor: type, parameters: Mapping[str, Any]) -> str | None:
    """What is wrong with the first parameter that is not what the constructor's annotation says; None where all are.

    Asked after the constructor has failed: what it takes, it may take.
    """
    try:
        annotations = typing.get_type_hints(constructor.__init__)  # type: ignore[misc]
    except NameError:  # of a module that imports its annotations for type checkers alone
        return None
    for name, value in parameters.items():
        if name not in annotations:
            continue
        try:
            TypeAdapter(annotations[name], config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            return f"{name} must be as its world takes it: {said}; found {reprlib.repr(value)}"
        except PydanticUserError:  # a type that brings a configuration of its own
            continue
    return None
