"""pass@k: success over several attempts at a task; with it, the metrics of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.data.metrics import episode_means, episode_value
from turnwise.data.trajectory import Trajectory


def pass_at_k(successes: int, samples: int, k: int) -> float:
    """The probability that at least one of k samples of a task succeeds, estimated from `successes` of `samples`.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1): 1 - C(n - c, k) / C(n, k).
    Raises ValueError unless 1 <= k <= samples and 0 <= successes <= samples.
    """
    if not (samples >= 1 and 0 <= successes <= samples):
        raise ValueError(f"successes must lie between 0 and the number of samples; found {successes} of {samples}")
    if not 1 <= k <= samples:
        raise ValueError(f"pass@k needs 1 <= k <= samples of every task; found k={k}, samples={samples}")
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def mean_pass_at_k(successes: Sequence[int], samples: Sequence[int], k: int) -> float:
    """pass@k averaged over tasks: `successes[i]` of `samples[i]` for task i, every task with at least k samples."""
    if not successes:
        raise ValueError("a mean over tasks needs one task at least; found none")
    return sum(pass_at_k(*counts, k) for counts in zip(successes, samples, strict=True)) / len(successes)


def evaluation_metrics(
    trajectories: Sequence[Trajectory], lost_count: int, primary_metric: str, recorded: frozenset[str]
) -> dict[str, float]:
    """The means of `turnwise.data.metrics.episode_means`, and `pass@k` for k = 2, 4, ... 64 if every task has as many.

    An attempt succeeds where the world's primary metric reaches 1. `lost_count` is the number of lost episodes.
    """
    metrics = dict(episode_means(trajectories, lost_count, recorded))
    correct: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        correct.setdefault(trajectory.task.id, []).append(episode_value(trajectory, primary_metric) >= 1.0)
    successes, samples = [sum(replicas) for replicas in correct.values()], [len(each) for each in correct.values()]
    # An episode that was lost leaves its task with fewer samples, and pass@k needs k of every task.
    for k in (2**power for power in range(1, 7) if 2**power <= min(samples, default=0)):
        metrics[f"pass@{k}"] = mean_pass_at_k(successes, samples, k)
    return metrics
