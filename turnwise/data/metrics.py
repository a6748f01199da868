"""Metrics of trajectories: one number per episode and metric, means over tasks and over episodes, weighted rewards.

In means over tasks, the replicas of a task are averaged first, so that a task counts once however often it was played.
`episode_means` averages over episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwise.config.agent import ALWAYS_GIVEN, Agent
from turnwise.data.trajectory import Ending, Trajectory, TurnKind
from turnwise.world import Column, World

_OF_EPISODES = frozenset({"success", "first_success", "attempts", "turns", "reply_tokens"})
"""Metrics of the episode itself, besides the world's rewards and metrics: see `episode_value`."""
RECORDED = ("reward/", "world/", "turns/", "first_success", "attempts")
"""Prefixes of the metrics that some episodes have and others lack: see `recorded_in`."""


def episode_value(trajectory: Trajectory, name: str) -> float:
    """A metric of one episode: `success`, `turns`, `reply_tokens`, or a reward or metric summed over its turns.

    `turns` counts acting turns; `turns/plan`, `turns/reflect` and `turns/summary` count the other kinds. With several
    attempts at the task, `first_success` is success at the first attempt and `attempts` their number; turns and tokens
    are counted over all attempts, everything else over the last.
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
    """Whether the (last attempt of the) episode was truncated after at least `limit` acting turns.

    Any truncation counts: where the budget of actions runs out in the last allowed turn, the ending is ACTION_LIMIT,
    but the limit on turns would have cut the episode off all the same.
    """
    acting = sum(turn.kind is TurnKind.ACT for turn in trajectory.last_attempt)
    return trajectory.ending.truncated and acting >= limit


def column_value(trajectory: Trajectory, column: Column) -> float | None:
    """A column's value for one episode; None where its denominator is 0, or the task does not have the column's tag."""
    if column.tag is not None and trajectory.task.tags.get(column.tag[0]) != column.tag[1]:
        return None
    value = episode_value(trajectory, column.value)
    if column.per is None:
        return value
    divisor = episode_value(trajectory, column.per)
    return value / divisor if divisor else None


def task_means(trajectories: Sequence[Trajectory], column: Column) -> dict[str, float]:
    """By task's id the mean of a column over its episodes, in order of first occurrence; without a value left out."""
    values: dict[str, list[float]] = {}
    for trajectory in trajectories:
        value = column_value(trajectory, column)
        if value is not None:
            values.setdefault(trajectory.task.id, []).append(value)
    return {task: sum(task_values) / len(task_values) for task, task_values in values.items()}


def recorded_in(world: World, agent: Agent, further_rewards: Iterable[str] = ()) -> frozenset[str]:
    """The names of all metrics that episodes of this world and agent may have, whether or not a batch has them.

    `reward/NAME` for every reward, the agent's `further_rewards` included; `world/NAME` for every metric that the
    columns show; `turns/KIND` for the kinds of turns that the agent asks for besides acting; `first_success` and
    `attempts` where there may be several attempts. A world may record a metric only when something happens, so no
    single batch need contain all of them.
    """
    rewards = {*world.rewards, *ALWAYS_GIVEN, *further_rewards}
    displayed = {name for column in world.columns for name in (column.value, column.per) if name is not None}
    metrics = {name for name in displayed - rewards - _OF_EPISODES if not name.startswith("turns/")}
    kinds = {agent.mode.name, agent.context.policy} & set(TurnKind)
    attempt_names = {"first_success", "attempts"} if (agent.mode.attempts or 1) > 1 else set[str]()
    world_metrics = {f"reward/{name}" for name in rewards} | {f"world/{name}" for name in metrics}
    return frozenset(world_metrics | {f"turns/{kind}" for kind in kinds} | attempt_names)


def episode_means(
    trajectories: Sequence[Trajectory], lost_count: int = 0, recorded: Iterable[str] = ()
) -> dict[str, float]:
    """The mean over episodes of everything that they recorded: rewards, metrics, endings, lengths; {} for no episodes.

    Names in `recorded` (see `recorded_in`) get a mean even where no episode has them: a reward that nobody earned is 0
    on average, not missing. Where tasks carry the name of their world as the tag `world`, the success in each world is
    added as `success/NAME`. `lost_count` is the number of lost episodes: missing data, which enter no mean but the
    shares of the endings, `ending/success` to `ending/world_lost`, which sum to 1.
    """
    count = len(trajectories)
    if not count:
        return {}
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    rewards = {f"reward/{name}" for turn in turns for name in turn.rewards}
    metrics = {f"world/{name}" for turn in turns for name in turn.metrics}
    kinds = {f"turns/{turn.kind}" for turn in turns if turn.kind is not TurnKind.ACT}
    attempt_names = {"first_success", "attempts"} if any(each.earlier_endings for each in trajectories) else set[str]()
    means = {}
    for key in sorted({"success", "turns", "reply_tokens"} | rewards | metrics | kinds | attempt_names | set(recorded)):
        is_turns = key.startswith(("reward/", "world/"))  # what an episode records may be called as a metric is
        name, value = (key.partition("/")[2], Trajectory.total) if is_turns else (key, episode_value)
        means[key] = sum(value(trajectory, name) for trajectory in trajectories) / count
    for world in sorted({str(each.task.tags["world"]) for each in trajectories if "world" in each.task.tags}):
        successes = [each.success for each in trajectories if each.task.tags.get("world") == world]
        means[f"success/{world}"] = sum(successes) / len(successes)
    endings = [*(trajectory.ending for trajectory in trajectories), *[Ending.WORLD_LOST] * lost_count]
    return {**means, **{f"ending/{ending}": endings.count(ending) / len(endings) for ending in Ending}}
