"""The mean, computed in one place, so that a table, a verdict and a number's provenance agree to the last bit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def mean(values: Iterable[float]) -> float:
    """The mean of at least one number; exact, without rounding, where all are equal. Raises ValueError for none."""
    sample = np.asarray(list(values), dtype=np.float64)
    if len(sample) == 0:
        raise ValueError("a mean needs one value at least; found none")
    return float(sample[0] if (sample == sample[0]).all() else sample.mean())
