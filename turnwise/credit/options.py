"""Checks of option values. Options come from configuration, so their types are not known before."""

from __future__ import annotations

import math
from typing import Any, get_args

from turnwise.errors import CreditError
from turnwise.suggestions import meant


def require_choice(option: str, value: object, choices: Any) -> None:
    """Raise CreditError unless the value is one of those of `choices`, a Literal type."""
    known = get_args(choices)
    if value not in known:
        raise CreditError(f"{option} must be one of {', '.join(known)}; found {value!r}{meant(value, known)}")


def require_number(option: str, value: object) -> None:
    """Raise CreditError unless the value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CreditError(f"{option} must be a number; found {value!r}")


def require_not_negative(option: str, value: float) -> None:
    """Raise CreditError unless the value is a number of at least 0."""
    require_number(option, value)
    if value < 0:
        raise CreditError(f"{option} must be at least 0; found {value!r}")


def require_share(option: str, value: float) -> None:
    """Raise CreditError unless the value is a number from 0 to 1."""
    require_number(option, value)
    if not 0 <= value <= 1:
        raise CreditError(f"{option} must be from 0 to 1; found {value!r}")


def require_switch(option: str, value: object) -> None:
    """Raise CreditError unless the value is true or false."""
    if not isinstance(value, bool):
        raise CreditError(f"{option} must be true or false; found {value!r}")
