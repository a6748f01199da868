"""The metrics of an evaluation: means over its episodes, and success over several attempts at a task."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.data.metrics import episode_means, episode_value
from turnwise.data.trajectory import Trajectory
from turnwise.statistics.pass_at_k import mean_pass_at_k


def evaluation_metrics(
    trajectories: Sequence[Trajectory], lost: int, primary_metric: str, recorded: frozenset[str]
) -> dict[str, float]:
    """The means of `turnwise.data.metrics.episode_means`, and `pass@k` for k = 2, 4, ... 64 if every task has as many.

    An attempt succeeds where the world's primary metric reaches 1. `lost` is the number of episodes that were lost.
    """
    metrics = dict(episode_means(trajectories, lost, recorded))
    correct: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        correct.setdefault(trajectory.task.id, []).append(episode_value(trajectory, primary_metric) >= 1.0)
    successes, samples = [sum(replicas) for replicas in correct.values()], [len(each) for each in correct.values()]
    # An episode that was lost leaves its task with fewer samples, and pass@k needs k of every task.
    for k in (2**power for power in range(1, 7) if 2**power <= min(samples, default=0)):
        metrics[f"pass@{k}"] = mean_pass_at_k(successes, samples, k)
    return metrics
