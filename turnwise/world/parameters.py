"""Checks of world parameters: each function returns the valid value, or raises ValueError.

The message has the parameter's name, what must hold and what was found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import urlsplit

Choice = TypeVar("Choice", bound=str)


def whole_number(name: str, value: object, lowest: int, highest: int) -> int:
    """The value if it is an int (not a bool) from `lowest` to `highest`. Raises ValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise ValueError(f"{name} must be a whole number from {lowest} to {highest}; found {value!r}")
    return value


def whole_numbers(name: str, value: object, lowest: int, highest: int) -> tuple[int, ...]:
    """The value if it is a list of different ints (not bools) in these bounds. Raises ValueError otherwise."""
    numbers = tuple(value) if isinstance(value, list | tuple) else ()
    valid = all(type(each) is int and lowest <= each <= highest for each in numbers)
    if not numbers or not valid or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{name} must be a list of different whole numbers from {lowest} to {highest}; found {value!r}"
        )
    return numbers


def true_or_false(name: str, value: object) -> bool:
    """The value if it is a bool. Raises ValueError otherwise."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; found {value!r}")
    return value


def one_of(name: str, value: Choice, known: Iterable[Choice]) -> Choice:
    """The value if it is one of those known. Raises ValueError otherwise."""
    if value not in (choices := tuple(known)):
        raise ValueError(f"{name} must be one of {', '.join(choices)}; found {value!r}")
    return value


def share(name: str, value: object, *, above_zero: bool = False) -> float:
    """The value as a float if it is a number from 0 to 1, with `above_zero` not 0. Raises ValueError otherwise."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= 1
        or (above_zero and value == 0)
    ):
        bounds = "above 0 and at most 1" if above_zero else "from 0 to 1"
        raise ValueError(f"{name} must be a number {bounds}; found {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """The value as a float if it is a number above 0 and at most 1e9. Raises ValueError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ValueError(f"{name} must be a number above 0; found {value!r}")
    if value > 1e9:
        raise ValueError(f"{name} must be at most 1e9, which is 30 years of seconds; found {value!r}")
    return float(value)


def http_address(name: str, value: object) -> str:
    """The http(s) address of a server, without trailing slashes. Raises ValueError for anything else."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, or half an IPv6 address
        usable = False
    if not isinstance(value, str) or not usable:
        raise ValueError(f"{name} must be such as http://127.0.0.1:8600; found {value!r}")
    return value.rstrip("/")
