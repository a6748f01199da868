"""Whether success has levelled off: a gain above a tolerance can be ruled out, noise included.

Two windows of w iterations each are compared, an earlier and a recent one. With y the success of one iteration's
episodes, s the variance of y over a window, S successes of n episodes in a window, and
p = (S_earlier + S_recent + 1) / (n_earlier + n_recent + 2):

    gain           g = mean of y over the recent window - mean of y over the earlier one
    noise          e = max(sqrt((s_earlier + s_recent) / w), sqrt(p (1 - p) (1 / n_earlier + 1 / n_recent)))
    levelled off   g + standard_errors * e <= tolerance

**Few episodes make it wait.** It does not ask whether a gain can be shown, which few episodes never can, but
whether one can be ruled out: where batches are small, e is large, and the answer is no until there is more to go by.
The noise is the larger of two estimates. The spread between iterations knows that episodes of one task, and iterations
with easy tasks, go together; but w values may agree by chance, or be all 0, and the binomial error, which never is 0,
then stands in. To be told sooner, enlarge the batch, the window or the tolerance. How rarely it errs, and how long it
waits, is in `docs/plateau.md`: noise cannot be ruled out, and who asks at every iteration asks often.

Ours; plateaus are usually found by comparing a best value with a patience (as learning-rate schedulers do), which takes
the luckiest of noisy values for the standard.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class IterationCounts:
    """The episodes of one iteration, at least one."""

    episodes: int
    """Those that were played to an end; lost ones are missing data."""
    successes: int
    at_limit: int
    """Episodes that the limit on turns cut off, unsolved."""

    @property
    def success(self) -> float:
        """The share of episodes that were solved."""
        return self.successes / self.episodes


def has_levelled_off(
    earlier: Sequence[IterationCounts], recent: Sequence[IterationCounts], *, tolerance: float, standard_errors: float
) -> bool:
    """Whether the gain from the earlier window to the recent one, and so many standard errors more, is no more than
    `tolerance`. The windows have as many iterations as each other, at least two.
    """
    gain = statistics.fmean(map(_success, recent)) - statistics.fmean(map(_success, earlier))
    return gain + standard_errors * standard_error(earlier, recent) <= tolerance


def standard_error(earlier: Sequence[IterationCounts], recent: Sequence[IterationCounts]) -> float:
    """Of the difference of two windows' mean success: the larger of two estimates."""
    spread = sum(statistics.variance(map(_success, window)) / len(window) for window in (earlier, recent))
    before, after = (sum(batch.episodes for batch in window) for window in (earlier, recent))
    successes = sum(batch.successes for batch in (*earlier, *recent))
    rate = (successes + 1) / (before + after + 2)
    return math.sqrt(max(spread, rate * (1 - rate) * (1 / before + 1 / after)))


def _success(batch: IterationCounts) -> float:
    return batch.success
