"""Rewards of one's own: functions of an episode that has ended, next to the rewards of the world and the agent.

    def brevity(trajectory: Trajectory, *, most: int = 20) -> float:
        return 1.0 if sum(len(turn.reply_tokens) for turn in trajectory.turns) <= most else 0.0

    rewards:
      brevity: { level: outcome, weight: 0.1, function: "my_rewards:brevity", options: { most: 30 } }

The function is called once for every episode of a rollout or an evaluation, by a policy or a baseline policy, before
the episode is stored: its raw value is kept as `reward/brevity`, and level and weight count later, in the credit. One
number is given with the last turn; one number per turn goes to the turns. Demonstrations are imitated whatever they
earn, and are not asked for.

A reward that cannot be determined (`RewardMissing`) makes the episode missing data, like a world that was lost.
A value that is no finite number (`turnwise.world.validation` says what is one) ends the run with `ContractError`.
Anything else that the function raises is a bug, and is raised. It must depend on the trajectory and its options alone:
what it returns is cached with the episode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.agent.loop import RolloutResult
from turnwise.config.agent import AGENT_REWARDS, AddedReward, added_rewards
from turnwise.config.options import read_options
from turnwise.config.schema import RewardSection
from turnwise.data.trajectory import LostEpisode, Trajectory
from turnwise.errors import ConfigurationError, ContractError, RewardMissing
from turnwise.plugins import REWARD, plugin, require_installed
from turnwise.project import project_root
from turnwise.world import World, finite_number

BUILT_IN: Mapping[str, str] = {"judge": "turnwise.agent.judge:judge", "overlong": "turnwise.agent.overlong:overlong"}
"""Reward functions of this package, by the name that `rewards.NAME.function` gives them: where each is defined."""
MOST_AT_ONCE = 64
MISSING = ": its function must return numbers, or raise tw.RewardMissing where the reward cannot be known"


@dataclass(frozen=True)
class RewardFunction:
    """A reward of one's own with what it needs: read by the checks of a configuration, before any compute."""

    function: Callable[..., float | Sequence[float]]
    """Maps a `Trajectory` and keyword options to one number for the episode, or one number per turn."""
    at_once: int = 1
    """How many episodes are asked for at once, each in a thread of its own: for a function that waits for a server. The
    results do not depend on it."""
    files: tuple[str, ...] = ()
    """The options that name files which the function reads, from the project's folder. They must be there, and their
    content is part of the cache key."""
    distributions: tuple[str, ...] = ()
    """The packages, as pip calls them, whose version may change a reward, besides those that its module imports."""
    require: Callable[..., None] | None = None
    """Called with all options before anything is computed: raises ConfigurationError for those that cannot work."""


def reward_function(name: str) -> RewardFunction:
    """The reward function of a name (`turnwise.plugins`). Raises ConfigurationError where there is none."""
    function = plugin(REWARD, "a reward's function", BUILT_IN.get(name, name), [*BUILT_IN])
    if isinstance(function, RewardFunction):
        return function
    if inspect.isfunction(function):
        return RewardFunction(function)
    raise ConfigurationError(
        f"a reward's function {name!r} must name a function from a Trajectory to numbers, or a RewardFunction of "
        f"turnwise.agent.added_rewards; found {function!r}",
        "TW-plugin-kind",
    )


def require_added_rewards(rewards: Mapping[str, RewardSection], world: World) -> None:
    """Raise ConfigurationError for a reward of one's own that cannot be computed, or has the name of another reward."""
    for name, section in added_rewards(rewards).items():
        if name in world.rewards or name in AGENT_REWARDS or not name.isidentifier():
            raise ConfigurationError(
                f"rewards.{name} must have a name of its own, in letters, digits and _, since it has a function; "
                f"{'the world or the agent gives a reward of that name' if name.isidentifier() else 'found others'}: "
                "call it something else",
                "TW-taken-name",
            )
        try:
            require_reward(section)
        except ConfigurationError as error:
            raise ConfigurationError(f"rewards.{name}: {error}") from error


def require_reward(section: AddedReward) -> None:
    """Raise ConfigurationError for options, files or packages with which a reward function cannot work."""
    reward = reward_function(section.function)
    options = read_options(section.function, reward.function, section.options)
    files_of(section)
    require_installed(f"the reward function {section.function}", reward.distributions)
    if reward.require is not None:
        reward.require(**options)


def files_of(section: AddedReward) -> dict[str, Path]:
    """The files that a reward's options name, by option. Raises ConfigurationError for one that is not there."""
    paths = {}
    for option in reward_function(section.function).files:
        if (path := section.options.get(option)) is not None:
            paths[option] = project_root() / str(path)
            if not paths[option].is_file():
                raise ConfigurationError(
                    f"options.{option} must name a file; found nothing at {paths[option]}", "TW-missing-file"
                )
    return paths


def with_added_rewards(rollout: RolloutResult, sections: Mapping[str, AddedReward]) -> RolloutResult:
    """The rollout with these rewards in its trajectories; those for which one could not be determined are lost.

    Raises ContractError where a function returns something else than finite numbers, one for the episode or one per
    turn.
    """
    for name, section in sections.items():
        reward = reward_function(section.function)
        options = read_options(section.function, reward.function, section.options)

        def rewarded(
            each: Trajectory, name: str = name, reward: RewardFunction = reward, options: dict[str, Any] = options
        ) -> Trajectory | LostEpisode:
            try:
                return _with_reward(each, name, reward.function(each, **options))
            except RewardMissing as error:
                return LostEpisode(
                    each.task, each.group, each.replica, f"the reward {name} could not be determined: {error.message}"
                )

        with ThreadPoolExecutor(max(1, min(reward.at_once, MOST_AT_ONCE))) as threads:
            results = list(threads.map(rewarded, rollout.trajectories))
        rollout = replace(
            rollout,
            trajectories=[each for each in results if isinstance(each, Trajectory)],
            lost=[*rollout.lost, *(each for each in results if isinstance(each, LostEpisode))],
        )
    return rollout


def _with_reward(trajectory: Trajectory, name: str, value: Any) -> Trajectory:
    """The trajectory with a reward on its turns: on the last one, if it is one number."""
    turns = list(trajectory.turns)
    if not turns:
        return trajectory
    what = f"reward {name} of {trajectory.task.id}"
    if _are_many(value):
        numbers = [finite_number(f"each {what}", each, MISSING) for each in value]
        if len(numbers) != len(turns):
            raise ContractError(
                f"{what} must be a number, or one for each of {len(turns)} turns; found {len(numbers)}",
                "TW-answer-type",
            )
    else:
        numbers = [finite_number(what, value, MISSING)]
    for place, number in enumerate(numbers, start=len(turns) - len(numbers)):
        turns[place] = replace(turns[place], rewards={**turns[place].rewards, name: number})
    return replace(trajectory, turns=tuple(turns))


def _are_many(value: Any) -> bool:
    """Whether the value has an order of entries: a list, a tuple, an array or a tensor with an axis, a generator."""
    if isinstance(value, Sequence | Iterator):
        return not isinstance(value, str | bytes | bytearray | memoryview)
    return bool(getattr(value, "shape", ()))
