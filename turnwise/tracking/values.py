"""Our values in the form and the size that MLflow takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

METRICS_PER_BATCH = 1000
PARAMETERS_PER_BATCH = 100
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000

Entry = TypeVar("Entry")


def flatten(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested parameters as `a.b.c` -> text, in the given order. Values other than text are written as in JSON."""
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            flat[name] = shortened(text, PARAMETER_LENGTH)
    return flat


def shortened(text: str, length: int) -> str:
    """A text that is not longer than `length`; one that had to be cut ends with a digest of the whole."""
    if len(text) <= length:
        return text
    note = f" ... cut from {len(text)} characters, {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
    return text[: length - len(note)] + note


def metric_name(name: str) -> str:
    """The name under which MLflow holds a metric: it allows no `@`, so that pass@4 becomes pass_at_4."""
    return name.replace("@", "_at_")


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are numbers, under MLflow's names: a chart can show neither NaN nor infinity."""
    return {metric_name(name): float(value) for name, value in metrics.items() if math.isfinite(value)}


def batches(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
    """The entries in their order, at most `size` at a time."""
    for start in range(0, len(entries), size):
        yield list(entries[start : start + size])
