"""AgentEvol: which of the trajectories that a policy has sampled it imitates.

    D_m = one trajectory of each task whose measure reached the threshold, the best, and of equals the first
    P_(m+1) = argmax over P of  E_(D_m and the demonstrations) [log P]

Paper: AgentGym (arXiv 2406.04151, AgentEvol). It writes the reward into the expectation; with a reward of 0 or 1 that
is the choice above. What differs from the paper and its release: a task is played several times and one success is
kept, where the release keeps every one; an iteration plays the tasks that it draws, and takes a stated number of steps,
instead of all tasks and several epochs; and the share of demonstrations in a step is a setting, where the release puts
both into one file, so that their numbers decide. Where a fine-tuning begins is a setting too: at the policy that
sampled, or, as in the release, at the one that it began with.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.data.metrics import episode_value
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError


def require_shares(batch: int, demonstration_share: float) -> None:
    """Raise ConfigurationError where a step would hold none of what has a share in it. A share of 1 is on purpose."""
    shown = round(batch * demonstration_share)
    if (demonstration_share < 1 and shown == batch) or (demonstration_share > 0 and shown == 0):
        raise ConfigurationError(
            "a step of evolution must hold some of all that has a share in it, the policy's own successes and "
            f"demonstrations; found evolution.batch: {batch} and evolution.demonstration_share: "
            f"{demonstration_share:g}, which is {shown} demonstrations: change the share, or enlarge the batch"
        )


def successes(trajectories: Sequence[Trajectory], measure: str, threshold: float) -> list[int]:
    """The indices of the trajectories that are kept, in order: at most one of each task.

    `measure` is a name of `turnwise.data.metrics.episode_value`, such as a world's primary metric.
    """
    best: dict[str, tuple[float, int]] = {}
    for index, trajectory in enumerate(trajectories):
        value = episode_value(trajectory, measure)
        found = best.get(trajectory.task.id)
        if value >= threshold and (found is None or value > found[0]):
            best[trajectory.task.id] = (value, index)
    return sorted(index for _, index in best.values())
