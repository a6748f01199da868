"""Checks of single options (numbers, counts, choices). Each error says what must hold and what was found."""

from __future__ import annotations

import math
from collections.abc import Iterable

from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant


def require_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    advice: str = "",
) -> None:
    """Raise ConfigurationError unless `value` is a finite number (not a bool) within the bounds.

    `above` and `below` are exclusive, `at_least` and `at_most` inclusive; `advice` ends the message.
    """
    bounds = [("above", above), ("of at least", at_least), ("of at most", at_most), ("below", below)]
    named = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    if not (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (at_most is None or value <= at_most)
        and (below is None or value < below)
    ):
        raise ConfigurationError(f"{name} must be a number {named}; found {value!r}{advice and ': ' + advice}")


def require_count(name: str, value: object) -> None:
    """Raise ConfigurationError unless `value` is an int (not a bool) of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number of at least 1; found {value!r}")


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ConfigurationError unless `value` is one of `choices`."""
    known = list(choices)
    if value not in known:
        raise ConfigurationError(f"{name} must be one of {', '.join(known)}; found {value!r}{meant(value, known)}")
