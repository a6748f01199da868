"""Performance profiles: the share of scores above each threshold, instead of the mean score.

    F(t) = mean over runs and tasks of [score > t]

(Dolan & Moré 2002; Agarwal et al. 2021, equation 1.) A variant whose curve lies above another's everywhere is better by
any summary statistic; where curves cross, the choice of the statistic decides.

*What differs from rliable*: the band is Student's t over the runs' own profiles, point by point, not a percentile
bootstrap, which with few runs is too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.statistics.interval import Interval
from turnwise.statistics.seeds import student_over_seeds


def performance_profile(scores: np.ndarray, thresholds: Sequence[float], *, level: float = 0.95) -> list[Interval]:
    """The share of scores above each threshold, with its interval over seeds.

    `scores`: [seeds, tasks], with at least one task. For the profile of the runs' means give them as a single column.
    Raises ValueError for another shape, or for a score that is not finite.
    """
    if scores.ndim != 2 or 0 in scores.shape or not np.isfinite(scores).all():
        raise ValueError(f"scores must be a table [seeds, tasks] of finite numbers; found one of shape {scores.shape}")
    return [
        student_over_seeds((scores > threshold).mean(axis=1), level=level, within=(0.0, 1.0))
        for threshold in thresholds
    ]
