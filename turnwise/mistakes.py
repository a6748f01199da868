"""How a mistake in a configuration is told: the key, what must hold, what was found, and the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant by a name that is not known; all that are, where none is like it."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"known are {', '.join(names) or 'none'}"


def unknown(name: str, known: Iterable[str]) -> str:
    """A name that is not known, with the nearest one."""
    return f"{name!r} is not a known name; {nearest(name, known)}"


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """A validation error in our words: the key, what must hold, what was found, and the nearest known key."""
    lines = []
    for mistake in error.errors():
        key = ".".join(str(part) for part in mistake["loc"])
        if mistake["type"] == "extra_forbidden":
            lines.append(f"{key}: {unknown(str(mistake['loc'][-1]), _fields_at(model, mistake['loc'][:-1]))}")
        elif mistake["type"] == "missing":
            lines.append(f"{key}: must be set; found nothing")
        else:
            message = mistake["msg"].removeprefix("Value error, ")
            lines.append(f"{key}: {message}; found {mistake['input']!r}" if key else message)
    return "\n".join(lines)


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The known keys of the section at a path."""
    current: Any = model
    for part in path:
        annotation = (
            current.model_fields[part].annotation if isinstance(part, str) and part in current.model_fields else None
        )
        inner = next((argument for argument in get_args(annotation) if _is_section(argument)), None)
        current = annotation if _is_section(annotation) else inner or current
    return list(current.model_fields)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "model_fields")
