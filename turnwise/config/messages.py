"""Messages of configuration errors: the key, what must hold, what was found, and where it was written."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from turnwise.suggestions import meant, unknown

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from turnwise.config.overlays import Written

MOST_MISTAKES = 8
"""Most errors listed in one message: more than that have a common cause, such as the wrong kind of file."""


OF_VARIANT = re.compile(r"(?:a )?variant(?:'s name [^;]*; found)? '([^']+)'")
"""The variant's name in a message that is about a variant."""


KEYS = re.compile(r"^[\w-]+(?=[: ])|[\w-]+(?:\.[\w+-]+)+")
"""Keys in a message: a section's name at its beginning, or a dotted key anywhere."""


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """A pydantic validation error as a message, one error per line.

    Each line has the key, what must hold, what was found, and for an unknown key the most similar known one.
    """
    lines = []
    # Unknown keys first: a missing key is often one of them, misspelled.
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    for mistake in mistakes[:MOST_MISTAKES]:
        key = ".".join(str(part) for part in mistake["loc"])
        if mistake["type"] == "extra_forbidden":
            lines.append(f"{key}: {unknown(str(mistake['loc'][-1]), _fields_at(model, mistake['loc'][:-1]))}")
        elif mistake["type"] == "missing":
            lines.append(f"{key}: must be set; found nothing")
        else:
            message = mistake["msg"].removeprefix("Value error, ") + _meant_choice(mistake)
            lines.append(f"{key}: {message}; found {reprlib.repr(mistake['input'])}" if key else message)
    if len(mistakes) > MOST_MISTAKES:
        lines.append(f"and {len(mistakes) - MOST_MISTAKES} more mistakes")
    return "\n".join(lines)


def _meant_choice(mistake: Any) -> str:
    """For a value that is not among the choices, the suggestion of the most similar one; else an empty text."""
    if mistake["type"] != "literal_error":
        return ""
    return meant(mistake["input"], re.findall("'([^']+)'", mistake["ctx"]["expected"]))


def with_places(message: str, written: Callable[[tuple[str | int, ...]], Written | None]) -> str:
    """A message with each line prefixed by the place of the key that it is about, `file:line:column: `.

    `written` returns where a key was written. Of several keys in a line, the one written last (in the topmost layer)
    gives the place; among equals the first, which for an error of a variant is the variant. Lines without a key that
    was written in a file stay unchanged.
    """
    return "\n".join(_with_place(line, written) for line in message.split("\n"))


def _with_place(line: str, written: Callable[[tuple[str | int, ...]], Written | None]) -> str:
    found = [each for keys in _keys_in(line) if (each := written(keys)) is not None]
    place = max(found, key=lambda each: each.layer).place if found else ""
    return f"{place}: {line}" if place else line


def _keys_in(line: str) -> Iterator[tuple[str | int, ...]]:
    if variant := OF_VARIANT.match(line):
        yield ("variants", variant[1])
    for key in KEYS.findall(line):
        yield tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The known keys of the section at a path, for suggestions."""
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
