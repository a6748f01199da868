"""Checks of parameters against a constructor's signature and type annotations, for error messages."""

from __future__ import annotations

import inspect
import reprlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from turnwise.suggestions import meant


def require_known(constructor: Callable[..., object], parameters: Mapping[str, Any]) -> None:
    """Raise ValueError for a parameter that the constructor does not take, with the most similar one that it does.

    A constructor with `**kwargs` accepts every name.
    """
    known = inspect.signature(constructor).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for name in parameters:
        if name not in known:
            listed = f"known are {', '.join(known)}" if known else "there are none"
            raise ValueError(f"{name} is no parameter: {listed}{meant(name, known)}")


def mistyped(constructor: type, parameters: Mapping[str, Any]) -> str | None:
    """A message on the first parameter that does not match its annotation; None where all match.

    Call it only after the constructor has failed: a value that the constructor takes is fine, whatever its annotation.
    """
    try:
        annotations = typing.get_type_hints(constructor.__init__)  # type: ignore[misc]
    except NameError:  # the module imports names of its annotations only under TYPE_CHECKING
        return None
    for name, value in parameters.items():
        if name not in annotations:
            continue
        try:
            TypeAdapter(annotations[name], config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            return f"{name} must be as its world takes it: {said}; found {reprlib.repr(value)}"
        except PydanticUserError:  # a type with a pydantic configuration of its own, which refuses ours
            continue
    return None
