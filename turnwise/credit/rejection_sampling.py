"""AgentEvol: rejection-sampling fine-tuning on the policy's own successful trajectories and demonstrations.

    D_m = for each task, the best trajectory whose measure reached the threshold; among equals, the first
    P_(m+1) = argmax over P of  E_(D_m and the demonstrations) [log P]

Paper: AgentGym (arXiv 2406.04151, AgentEvol). It writes the reward into the expectation; with a reward of 0 or 1 that
is the selection above. What differs from the paper and its release: a task is played several times and one success is
kept, where the release keeps all of them; an iteration plays the tasks that it draws and takes a set number of steps,
instead of all tasks and several epochs; and the share of demonstrations in a step is a setting, where the release puts
both into one file, so that their counts decide. Where fine-tuning starts is a setting too: from the policy that
sampled, or, as in the release, from the initial policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.data.metrics import episode_value
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError


def require_shares(batch: int, demonstration_share: float) -> None:
    """Raise ConfigurationError where rounding leaves a step without demonstrations, or without the policy's successes.

    `batch` is the number of trajectories in a step. Shares of 0 and 1 leave one of the two out on purpose.
    """
    demonstrations = round(batch * demonstration_share)
    if (demonstration_share < 1 and demonstrations == batch) or (demonstration_share > 0 and demonstrations == 0):
        raise ConfigurationError(
            "a step of evolution must hold some of all that has a share in it, the policy's own successes and "
            f"demonstrations; found evolution.batch: {batch} and evolution.demonstration_share: "
            f"{demonstration_share:g}, which is {demonstrations} demonstrations: change the share or enlarge the batch",
            "TW-empty-share",
        )


def successes(trajectories: Sequence[Trajectory], measure: str, threshold: float) -> list[int]:
    """The indices of the trajectories to imitate, ascending: for each task the best one that reaches the threshold.

    `measure` is a name that `turnwise.data.metrics.episode_value` knows, such as a world's primary metric.
    """
    best: dict[str, tuple[float, int]] = {}
    for index, trajectory in enumerate(trajectories):
        value = episode_value(trajectory, measure)
        best_so_far = best.get(trajectory.task.id)
        if value >= threshold and (best_so_far is None or value > best_so_far[0]):
            best[trajectory.task.id] = (value, index)
    return sorted(index for _, index in best.values())
