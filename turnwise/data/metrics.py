"""What is measured on trajectories: one number per episode and measure, and their means over tasks.

The task is the unit of every mean: replicas of a task are averaged first, so that a task counts once however often it
was played.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from turnwise.config.agent import Agent
from turnwise.config.agent_rewards import AGENT_REWARDS
from turnwise.config.schema import RewardSection
from turnwise.data.trajectory import Ending, Trajectory, TurnKind
from turnwise.world import Column, World

_OF_EPISODES = frozenset({"success", "first_success", "attempts", "turns", "reply_tokens"})
"""Measures of the episode itself, beside its rewards and metrics: see `episode_value`."""
RECORDED = ("reward/", "world/", "turns/", "first_success", "attempts")
"""How the names begin of what is recorded of some episodes and not of others: see `recorded_in`."""


def episode_value(trajectory: Trajectory, name: str) -> float:
    """A measure of one episode: `success`, `turns`, `reply_tokens`, or a reward or metric summed over its turns.

    `turns` are those that act; `turns/plan`, `turns/reflect` and `turns/summary` are the others. Where a task was
    attempted again, `first_success` is success at the first attempt and `attempts` their number; turns and tokens are
    counted over all attempts, everything else is of the last.
    """
    if name == "success":
        return float(trajectory.success)
    if name == "first_success":
        return float(trajectory.success and not trajectory.earlier_endings)
    if name == "attempts":
        return 1.0 + len(trajectory.earlier_endings)
    if name == "turns":
        return float(trajectory.count(TurnKind.ACT))
    if name.startswith("turns/"):
        return float(trajectory.count(TurnKind(name.removeprefix("turns/"))))
    if name == "reply_tokens":
        return float(sum(len(turn.reply_tokens) for turn in trajectory.turns))
    return trajectory.total(name)


def ended_at(trajectory: Trajectory, limit: int) -> bool:
    """Whether the limit of so many acting turns cut the episode, or its last attempt, off, unsolved.

    Where the actions of an episode end with its last turn, the ending names them, and it is the limit all the same.
    """
    last = len(trajectory.earlier_endings)
    acting = [turn for turn in trajectory.turns if turn.kind is TurnKind.ACT and turn.attempt == last]
    return trajectory.ending.truncated and len(acting) >= limit


def column_value(trajectory: Trajectory, column: Column) -> float | None:
    """A column's value for one episode; None where its denominator is 0, or its tag is not the task's."""
    if column.tag is not None and trajectory.task.tags.get(column.tag[0]) != column.tag[1]:
        return None
    value = episode_value(trajectory, column.value)
    if column.per is None:
        return value
    divisor = episode_value(trajectory, column.per)
    return value / divisor if divisor else None


def by_task(trajectories: Sequence[Trajectory], column: Column) -> list[float]:
    """One mean per task, in order of the tasks; tasks without a value are left out."""
    return list(task_means(trajectories, column).values())


def task_means(trajectories: Sequence[Trajectory], column: Column) -> dict[str, float]:
    """The mean of every task by its id, in order of the tasks; tasks without a value are left out."""
    values: dict[str, list[float]] = {}
    for trajectory in trajectories:
        value = column_value(trajectory, column)
        if value is not None:
            values.setdefault(trajectory.task.id, []).append(value)
    return {task: sum(of_task) / len(of_task) for task, of_task in values.items()}


def recorded_in(world: World, agent: Agent) -> frozenset[str]:
    """What may be recorded of episodes: `reward/NAME` of every reward, and `world/NAME` of what the columns show;
    `turns/KIND` of what the agent is asked for beside acting, and `attempts` where there may be several.

    A world may record what happens and say nothing where it does not, so no batch of episodes names them all.
    """
    rewards = {*world.rewards, *AGENT_REWARDS}
    shown = {name for column in world.columns for name in (column.value, column.per) if name is not None}
    metrics = {name for name in shown - rewards - _OF_EPISODES if not name.startswith("turns/")}
    kinds = {agent.mode.name, agent.context.policy} & set(TurnKind)
    again = {"first_success", "attempts"} if (agent.mode.attempts or 1) > 1 else set[str]()
    of_world = {f"reward/{name}" for name in rewards} | {f"world/{name}" for name in metrics}
    return frozenset(of_world | {f"turns/{kind}" for kind in kinds} | again)


def episode_means(trajectories: Sequence[Trajectory], lost: int = 0, recorded: Iterable[str] = ()) -> dict[str, float]:
    """The mean over episodes of everything that was recorded: rewards, metrics, endings, lengths.

    What is `recorded` (see `recorded_in`) has a mean also where no episode has it: a reward that nobody earned is 0 on
    average, not missing.
    Where tasks are of several worlds, each by its name as the tag `world`, also the success in each: `success/NAME`.
    `lost` episodes are missing data, and in no mean but the shares of the endings, `ending/success` to
    `ending/world_lost`, which sum to 1.
    """
    count = len(trajectories)
    if not count:
        return {}
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    rewards = {f"reward/{name}" for turn in turns for name in turn.rewards}
    metrics = {f"world/{name}" for turn in turns for name in turn.metrics}
    kinds = {f"turns/{turn.kind}" for turn in turns if turn.kind is not TurnKind.ACT}
    again = {"first_success", "attempts"} if any(each.earlier_endings for each in trajectories) else set[str]()
    means = {}
    for key in sorted({"success", "turns", "reply_tokens"} | rewards | metrics | kinds | again | set(recorded)):
        name = key.partition("/")[2] if key.startswith(("reward/", "world/")) else key
        means[key] = sum(episode_value(trajectory, name) for trajectory in trajectories) / count
    for world in sorted({str(each.task.tags["world"]) for each in trajectories if "world" in each.task.tags}):
        of_world = [each.success for each in trajectories if each.task.tags.get("world") == world]
        means[f"success/{world}"] = sum(of_world) / len(of_world)
    endings = [*(trajectory.ending for trajectory in trajectories), *[Ending.WORLD_LOST] * lost]
    return {**means, **{f"ending/{ending}": endings.count(ending) / len(endings) for ending in Ending}}


def anchors(trajectories: Sequence[Trajectory]) -> list[list[str | None]] | None:
    """The world's state before each turn, where the world tells it of every turn that acts."""
    acting = (turn for trajectory in trajectories for turn in trajectory.turns if turn.kind is TurnKind.ACT)
    if any(turn.state is None for turn in acting):
        return None
    return [[turn.state for turn in trajectory.turns] for trajectory in trajectories]


def weighted_rewards(trajectory: Trajectory, rewards: Mapping[str, RewardSection]) -> tuple[list[float], float]:
    """The weighted turn-level reward of each turn, and the weighted outcome: placement is configuration.

    Where there were several attempts, rewards of turns stay with their turns in each; the outcome is the last one's.
    """
    per_turn = [
        sum(
            section.weight * turn.rewards.get(name, 0.0) for name, section in rewards.items() if section.level == "turn"
        )
        for turn in trajectory.turns
    ]
    outcome = sum(
        section.weight * sum(turn.rewards.get(name, 0.0) for turn in trajectory.last_attempt)
        for name, section in rewards.items()
        if section.level == "outcome"
    )
    return per_turn, outcome


def weighted_return(trajectory: Trajectory, rewards: Mapping[str, RewardSection]) -> float:
    """All weighted rewards of a trajectory together, wherever they are placed."""
    per_turn, outcome = weighted_rewards(trajectory, rewards)
    return math.fsum(per_turn) + outcome
