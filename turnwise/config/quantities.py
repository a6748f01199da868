"""The kinds of numbers and names that a configuration holds, each with its bounds.

A bound lies far beyond what papers and machines of today need, so that it stops no experiment: what is beyond it is a
slip of the keyboard, and would fill a disk, hang a machine or turn into infinities before anybody looked. No number may
be infinite or NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

Count = Annotated[int, Field(ge=1, le=1_000_000)]
"""Iterations, steps, turns, tasks: a million of them is years of training, and a million tasks half a gigabyte."""
Whole = Annotated[int, Field(ge=0, le=1_000_000)]
"""A count that may be none."""
Batch = Annotated[int, Field(ge=1, le=10_000)]
"""What is played or learned from side by side, or again and again: each episode holds a world."""
Repeats = Annotated[int, Field(ge=0, le=1000)]
"""How often something is tried again, or recorded."""
Tokens = Annotated[int, Field(ge=1, le=2**24)]
"""The longest published contexts are of ten million tokens."""
Threads = Annotated[int, Field(ge=1, le=1024)]
"""More than any machine has processors."""
Layers = Annotated[int, Field(ge=1, le=1000)]
"""Layers, or heads of one: the largest published models have less than 200."""
Width = Annotated[int, Field(ge=1, le=1_000_000)]
"""Of a layer: the largest published models have less than 100,000."""
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Not negative: other tools take -1 for another seed every time, which nothing here can have."""

Number = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
"""A reward's weight or a monitor's bound. Sums of larger ones lose what float32 can tell apart."""
Positive = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-12, le=10.0, allow_inf_nan=False)]
"""AdamW moves a weight by about this much a step; below 1e-12 no weight of float32 moves."""
Temperature = Annotated[float, Field(ge=0.01, le=100.0, allow_inf_nan=False)]
"""Logits are divided by it. Beyond these, sampling is greedy or uniform, and log-probabilities overflow."""
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]
"""At most a day."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
NAME_RULE = (
    "must be letters, digits and any of _ - . alone, begin with none of - and ., and have at most 200 characters, as "
    "MLflow and file systems take it"
)


def _require_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"a name {NAME_RULE}")
    return name


Name = Annotated[str, AfterValidator(_require_name)]
"""What names a folder and an entry of MLflow."""


def _require_finite(options: dict[str, Any]) -> dict[str, Any]:
    for path, value in _values(options):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{path} must be a finite number; found {value}")
    return options


def _values(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every value of nested mappings and lists, with its dotted path."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [(path, value), *(each for key, below in inner for each in _values(below, f"{path}.{key}".lstrip(".")))]


Options = Annotated[dict[str, Any], AfterValidator(_require_finite)]
"""What a rule or a world is given by name; it says itself what it accepts, and no number is infinite or NaN."""
