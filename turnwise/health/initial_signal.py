"""The initial signal: whether reinforcement could learn anything from a policy, judged before it begins.

A rule that compares the episodes of a group learns nothing from a group whose rewards are all alike. How many of the
groups of an iteration will differ is estimated from an evaluation of the policy, by the experiment's own weighted
rewards: see `turnwise.statistics.group_spread`. Where fewer than one is expected, reinforcement has no beginning. A
rule that compares all episodes of an iteration has none where no reward differs at all.

It is a forecast, not a guard: nothing is ended by it. The evaluation may be at another temperature than training, and
its tasks are the validation task set's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.config.schema import RewardSection, Rollout
from turnwise.credit.batch import weighted_returns
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.statistics.group_spread import SpreadShare, expected_spread

WHAT_MAY_HELP = (
    "a longer warm start (warm_start.maximum_steps, or demonstrations that are closer to the world's oracle), easier "
    "parameters of the world, denser rewards, or larger groups (rollout.group_size)"
)


@dataclass(frozen=True)
class InitialSignal:
    """What the episodes of a policy, before any training, say of the groups that it would be trained on."""

    success: float
    """Share (0 to 1) of the sampled episodes that the world calls solved."""
    tasks: int
    episodes: int
    spread: SpreadShare
    """Of groups of `group_size`; where `grouped` is false, of the one batch that all episodes of an iteration are."""
    group_size: int
    groups: int
    """Groups of an iteration, `rollout.prompts`."""
    grouped: bool
    """Whether the rule compares the episodes of a group, and not all episodes of an iteration."""

    @property
    def is_missing(self) -> bool:
        """Whether fewer than one group of an iteration is expected to differ; without groups, whether no reward did."""
        return self.groups * self.spread.most < 1.0 if self.grouped else self.spread.most == 0.0

    def found(self) -> str:
        """What was found, for one line."""
        sample = f"sampled success {self.success:.2f} in {self.episodes} episodes of {self.tasks} tasks"
        if not self.grouped:
            return f"{sample}; rewards differ" if self.spread.most else f"{sample}; no reward differs from another"
        if self.spread.most == 0.0:
            return f"{sample}; rewards differ within no group"
        counts = SpreadShare(self.groups * self.spread.least, self.groups * self.spread.most)
        expected = f"{_between(counts, '{:.1f}')} of {self.groups} an iteration"
        share = _between(self.spread, "{:.0%}")
        return f"{sample}; rewards differ within {share} of groups of {self.group_size}, {expected}"

    def warning(self) -> str:
        """Why reinforcement has no beginning and what may help; empty where it has one."""
        if not self.is_missing:
            return ""
        if self.success == 1.0:
            return f"there is nothing left to learn: {self.found()}. What may help: harder parameters of the world"
        little = "hardly anything" if self.spread.most else "nothing"
        return f"reinforcement has {little} to begin with: {self.found()}. What may help: {WHAT_MAY_HELP}"


def initial_signal(
    trajectories: Sequence[Trajectory], rewards: Mapping[str, RewardSection], rollout: Rollout, *, grouped: bool
) -> InitialSignal:
    """Judge a policy by its sampled episodes.

    `rewards` and `rollout` are the experiment's sections; `grouped`: whether its rule compares within groups. Raises
    ValueError where there is no episode.
    """
    returns_by_task: dict[str, list[float]] = {}
    returns = weighted_returns(trajectory_arrays(trajectories), rewards)
    for trajectory, episode_return in zip(trajectories, returns, strict=True):
        returns_by_task.setdefault(trajectory.task.id, []).append(episode_return)
    if grouped:
        spread = expected_spread(returns_by_task.values(), rollout.group_size)
    else:
        everything = [reward for task_returns in returns_by_task.values() for reward in task_returns]
        spread = expected_spread([everything], max(2, rollout.prompts * rollout.group_size))
    return InitialSignal(
        success=sum(trajectory.success for trajectory in trajectories) / len(trajectories),
        tasks=len(returns_by_task),
        episodes=len(trajectories),
        spread=spread,
        group_size=rollout.group_size,
        groups=rollout.prompts,
        grouped=grouped,
    )


def _between(bounds: SpreadShare, form: str) -> str:
    low, high = form.format(bounds.least), form.format(bounds.most)
    return f"about {low}" if low == high else f"{low} to {high}"
