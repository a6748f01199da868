"""A test for a plateau of success: can a gain above a tolerance be ruled out, given the noise?

Two windows of w iterations each are compared, an earlier and a recent one. With y the success of one iteration's
episodes, s the variance of y over a window, S successes of n episodes in a window, and
p = (S_earlier + S_recent + 1) / (n_earlier + n_recent + 2):

    gain           g = mean of y over the recent window - mean of y over the earlier one
    noise          e = max(sqrt((s_earlier + s_recent) / w), sqrt(p (1 - p) (1 / n_earlier + 1 / n_recent)))
    levelled off   g + standard_errors * e <= tolerance

**With few episodes the test waits.** It asks whether a gain can be ruled out, not whether one can be shown, which a few
episodes never can: where batches are small, e is large, and the answer is no until there are more data. The noise is
the larger of two estimates. The variance between iterations accounts for the correlation of episodes of one task, and
of iterations with easy tasks; but w values may agree by chance, or be all 0, and then the binomial error, which is
never 0, is the larger one. For an earlier answer enlarge the batch, the window or the tolerance. `docs/plateau.md` has
the error rate and the delay: noise cannot be ruled out, and a test at every iteration is a repeated test.

The test is ours; plateaus are usually found by comparing with the best value so far, with a patience (as learning-rate
schedulers do), which makes the luckiest of noisy values the standard.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.data.metrics import ended_at
from turnwise.data.trajectory import Trajectory


@dataclass(frozen=True)
class IterationCounts:
    """Counts of the episodes of one iteration."""

    episodes: int
    """Episodes that were played to an end; lost ones are missing data. `success` needs at least one."""
    successes: int
    at_limit: int
    """Episodes that the limit on turns cut off, unsolved."""

    @classmethod
    def of(cls, episodes: Sequence[Trajectory], limit: int) -> IterationCounts:
        """The counts of episodes that were played at a turn limit."""
        return cls(
            episodes=len(episodes),
            successes=sum(episode.success for episode in episodes),
            at_limit=sum(ended_at(episode, limit) for episode in episodes),
        )

    @property
    def success(self) -> float:
        """The share of episodes that were solved."""
        return self.successes / self.episodes


def has_levelled_off(
    earlier: Sequence[IterationCounts], recent: Sequence[IterationCounts], *, tolerance: float, standard_errors: float
) -> bool:
    """Whether the gain from the earlier to the recent window, plus `standard_errors` times its standard error, is at
    most `tolerance`. Both windows have the same number of iterations, at least two.
    """
    gain = statistics.fmean(each.success for each in recent) - statistics.fmean(each.success for each in earlier)
    return gain + standard_errors * standard_error(earlier, recent) <= tolerance


def standard_error(earlier: Sequence[IterationCounts], recent: Sequence[IterationCounts]) -> float:
    """The standard error of the difference of two windows' mean success: e at the head of this file."""
    spread = sum(statistics.variance([each.success for each in window]) / len(window) for window in (earlier, recent))
    before, after = (sum(batch.episodes for batch in window) for window in (earlier, recent))
    successes = sum(batch.successes for batch in (*earlier, *recent))
    rate = (successes + 1) / (before + after + 2)
    return math.sqrt(max(spread, rate * (1 - rate) * (1 / before + 1 / after)))
