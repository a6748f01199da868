"""Messages of configuration errors: the key, what must hold, what was found, and where it was written."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from turnwise.config.peer_names import peer_answer
from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant, unknown

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from turnwise.config.overlays import Written

KINDS_OF_SEEDS = ("a list of seeds", "a rule for seeds")
"""What pydantic calls the two ways to give seeds where it names a mistake; no message repeats it."""
MOST_MISTAKES = 8
"""Most errors listed in one message: more than that have a common cause, such as the wrong kind of file."""


OF_VARIANT = re.compile(r"(?:a )?variant(?:'s name [^;]*; found)? '([^']+)'")
"""The variant's name in a message that is about a variant."""


KEYS = re.compile(r"^[\w-]+(?=[: ])|[\w-]+(?:\.[\w+-]+)+")
"""Keys in a message: a section's name at its beginning, or a dotted key anywhere."""


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """A pydantic validation error as a message, one error per line.

    Each line has the key, what must hold, what was found, for an unknown key or choice the most similar known one, and
    the code of the mistake.
    """
    # Unknown keys first: a missing key is often one of them, misspelled.
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    lines = [str(_refusal(mistake, model)) for mistake in mistakes[:MOST_MISTAKES]]
    if len(mistakes) > MOST_MISTAKES:
        lines.append(f"and {len(mistakes) - MOST_MISTAKES} more mistakes")
    return "\n".join(lines)


def _refusal(mistake: Any, model: type[BaseModel]) -> ConfigurationError:
    """One mistake: key, requirement, what was found, suggestion."""
    path = tuple(part for part in mistake["loc"] if part not in KINDS_OF_SEEDS)
    key = ".".join(str(part) for part in path)
    if mistake["type"] == "extra_forbidden":
        return ConfigurationError(f"{key}: {unknown(str(path[-1]), _fields_at(model, path[:-1]))}", "TW-unknown-option")
    error = requirement(mistake)
    must, input_text = error.message, "nothing" if mistake["type"] == "missing" else reprlib.repr(mistake["input"])
    if mistake["type"] == "model_type":
        must = f"must be a section with {', '.join(_fields_at(model, path))}"
    if not key:
        return error
    suggestion = ""
    if mistake["type"] == "literal_error":
        suggestion = peer_answer(key, mistake["input"]) or meant(mistake["input"], _choices(mistake))
    line = f"{key}{' ' if must.startswith('must ') else ': '}{must}"
    return ConfigurationError(line if "; found " in line else f"{line}; found {input_text}{suggestion}", error.code)


REQUIREMENTS = {
    "missing": ("must be set", "TW-missing-option"),
    "greater_than": ("must be above {}", "TW-option-range"),
    "greater_than_equal": ("must be at least {}", "TW-option-range"),
    "less_than": ("must be below {}", "TW-option-range"),
    "less_than_equal": ("must be at most {}", "TW-option-range"),
    "finite_number": ("must be a finite number", "TW-option-range"),
    "float_type": ("must be a number", "TW-option-type"),
    "int_type": ("must be a whole number", "TW-option-type"),
    "int_from_float": ("must be a whole number", "TW-option-type"),
    "bool_type": ("must be true or false", "TW-option-type"),
    "string_type": ("must be a text", "TW-option-type"),
    "list_type": ("must be a list", "TW-option-type"),
    "tuple_type": ("must be a list", "TW-option-type"),
    "dict_type": ("must be a section", "TW-not-a-section"),
    "model_type": ("must be a section", "TW-not-a-section"),
}
"""By the type of pydantic's mistake, what must hold, with the bound if there is one, and the code."""


def requirement(mistake: Any) -> ConfigurationError:
    """What must hold, by one of the mistakes that pydantic's `ValidationError.errors` lists: "must be above 0"."""
    context = mistake.get("ctx", {})
    bounds = [
        f"{bound:g}" if isinstance(bound, float) else bound
        for bound in context.values()
        if isinstance(bound, int | float)
    ]
    if mistake["type"] in REQUIREMENTS:
        must, code = REQUIREMENTS[mistake["type"]]
        return ConfigurationError(must.format(*bounds), code)
    match mistake["type"]:
        case "literal_error":
            return ConfigurationError(f"must be one of {', '.join(_choices(mistake))}", "TW-unknown-choice")
        case "value_error" if isinstance(context["error"], ConfigurationError):
            return context["error"]
        case kind if kind.endswith(("_type", "_parsing")):
            return ConfigurationError(mistake["msg"], "TW-option-type")
        case _:
            return ConfigurationError(mistake["msg"].removeprefix("Value error, "), "TW-option-value")


def _choices(mistake: Any) -> list[str]:
    """The values that a choice may have."""
    return [text or number for text, number in re.findall(r"'([^']+)'|(\d+)", mistake["ctx"]["expected"])]


def with_places(message: str, lookup: Callable[[tuple[str | int, ...]], Written | None]) -> str:
    """A message with each line prefixed by the place of the key that it is about, `file:line:column: `.

    `lookup` returns where a key was written. Of several keys in a line, the one written last (in the topmost layer)
    gives the place; among equals the first, which for an error of a variant is the variant. Lines without a key that
    was written in a file stay unchanged.
    """
    lines = []
    for line in message.split("\n"):
        places = [each for keys in _keys_in(line) if (each := lookup(keys)) is not None]
        place = max(places, key=lambda each: each.layer).place if places else ""
        lines.append(f"{place}: {line}" if place else line)
    return "\n".join(lines)


def _keys_in(line: str) -> Iterator[tuple[str | int, ...]]:
    if variant := OF_VARIANT.match(line):
        yield ("variants", variant[1])
    for key in KEYS.findall(line):
        yield tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The known keys of the section at a path, for suggestions."""
    current: Any = model
    for part in path:
        if isinstance(part, str) and part in current.model_fields:
            current = _section_in(current.model_fields[part].annotation) or current
    return list(current.model_fields)


def _section_in(annotation: Any) -> Any:
    """The section that an annotation is or holds, as `dict[str, AlarmRule | None]` does; None where there is none."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return annotation
    return next((section for inner in get_args(annotation) if (section := _section_in(inner)) is not None), None)
