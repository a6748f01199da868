"""Conversion of parameters and metrics to the forms and sizes that MLflow accepts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from turnwise.tracking.names import mlflow_name

METRICS_PER_BATCH = 1000
PARAMETERS_PER_BATCH = 100
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000

Entry = TypeVar("Entry")


def flatten(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested parameters as `a.b.c` -> text, in the given order, by their names in MLflow. Values other than text are
    written as JSON.

    Texts are cut to `PARAMETER_LENGTH` characters: see `shortened`.
    """
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            flat[mlflow_name(name)] = shortened(text, PARAMETER_LENGTH)
    return flat


def shortened(text: str, length: int) -> str:
    """The text, cut to at most `length` characters; a cut text ends with a digest of the whole."""
    if len(text) <= length:
        return text
    note = f" ... cut from {len(text)} characters, {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
    return text[: length - len(note)] + note


def shortened_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags by their names in MLflow, each value cut to `TAG_LENGTH` characters: see `shortened`."""
    return {mlflow_name(key): shortened(value, TAG_LENGTH) for key, value in tags.items()}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite, under their names in MLflow, whose charts can show neither NaN nor infinity."""
    return {mlflow_name(name): float(value) for name, value in metrics.items() if math.isfinite(value)}


def batches(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
    """Successive lists of at most `size` entries, in order."""
    for start in range(0, len(entries), size):
        yield list(entries[start : start + size])
