"""`check_reward`: whether a reward of one's own keeps the contract of `turnwise.agent.added_rewards`.

It is called on episodes that end in every way there is, with replies that could not be read, with plans and summaries,
several attempts, and text of every kind. It must answer each with one finite number, or one per turn, or say that the
reward is missing, though not of all; be a function of the episode alone; and leave the episode as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from turnwise.agent.added_rewards import RewardFunction, files_of, require_reward, reward_function, with_added_rewards
from turnwise.agent.loop import RolloutResult
from turnwise.checking.report import Broken, CheckReport, examine
from turnwise.config.agent import AddedReward
from turnwise.config.options import read_options
from turnwise.data.trajectory import Ending, Trajectory, Turn, TurnKind
from turnwise.world import Task

REWARD = "checked"
TEXTS = ("up", "", "Zürich, 你好, \U0001f600", "<think> so </think><answer> up</answer>", "x" * 2000, "a\nb\tc\x00")


@dataclass(frozen=True)
class CheckedReward:
    """A reward function with its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def function(self) -> RewardFunction:
        """The function, with what it declares."""
        return reward_function(self.name)

    @property
    def section(self) -> AddedReward:
        """The reward as a configuration has it."""
        return AddedReward(function=self.name, options=dict(self.options))

    @cached_property
    def episodes(self) -> list[Trajectory]:
        """Episodes of every kind."""
        endings = (ending for ending in Ending if ending is not Ending.WORLD_LOST)
        return [*(_episode(number, ending) for number, ending in enumerate(endings)), _episode_with_thoughts()]

    def turn_rewards(self, episodes: list[Trajectory]) -> dict[str, list[float | None]]:
        """The reward of each turn, None where it has none, by the id of the task; without episodes that were lost."""
        played = with_added_rewards(RolloutResult(episodes, []), {REWARD: self.section})
        if not played.trajectories:
            raise Broken(f"a reward must be determined; of {len(episodes)} episodes {played.lost[0].reason}")
        return {each.task.id: [turn.rewards.get(REWARD) for turn in each.turns] for each in played.trajectories}


def check_reward(name: str, options: Mapping[str, Any] | None = None) -> CheckReport:
    """Run all checks on a reward function: an entry point, or `module:name`.

    Errors of the function become findings and are not raised. Raises ConfigurationError where none has that name.
    """
    reward = CheckedReward(name, dict(options or {}))
    reward_function(name)
    checks: list[tuple[str, Callable[[CheckedReward], str]]] = [
        ("the reward declares itself", declares_itself),
        ("every episode has a number", numbers_are_given),
        ("the same episode gives the same", reward_repeats),
        ("order does not matter", order_does_not_matter),
        ("an episode is left as it is", episodes_stay),
    ]
    return CheckReport(name, tuple(examine(title, partial(check, reward)) for title, check in checks), "reward")


def declares_itself(reward: CheckedReward) -> str:
    """Check that the options are the function's, that its files are there and its packages are installed."""
    require_reward(reward.section)
    options = read_options(reward.name, reward.function.function, reward.options)
    return f"{len(options)} options, {len(files_of(reward.section))} files, {reward.function.at_once} at once"


def numbers_are_given(reward: CheckedReward) -> str:
    """Check that each episode gets one finite number, or one per turn, unless the function says that it is missing."""
    rewards = reward.turn_rewards(reward.episodes)
    per_turn = any(value is not None for row in rewards.values() for value in row[:-1])
    values = sorted({value for row in rewards.values() for value in row if value is not None})
    lost_count = len(reward.episodes) - len(rewards)
    missing = f"; {lost_count} lost, whose reward is missing" if lost_count else ""
    kind = "turn" if per_turn else "episode"
    return f"{len(rewards)} episodes, one number per {kind}, {values[0]:g} to {values[-1]:g}{missing}"


def reward_repeats(reward: CheckedReward) -> str:
    """Check that an episode gets the same twice: what is cached must be what would be computed."""
    if reward.turn_rewards(reward.episodes) != reward.turn_rewards(reward.episodes):
        raise Broken("a reward must be a function of the episode; asked twice, it gave others")
    return "to the last bit"


def order_does_not_matter(reward: CheckedReward) -> str:
    """Check that what an episode gets does not depend on those before it."""
    if reward.turn_rewards(reward.episodes) != reward.turn_rewards(reward.episodes[::-1]):
        raise Broken("a reward must be a function of the episode; in another order of episodes it gave others")
    return f"{len(reward.episodes)} episodes, the last first"


def episodes_stay(reward: CheckedReward) -> str:
    """Check that the function changes nothing in the episode that it is given."""
    before = copy.deepcopy(reward.episodes)
    reward.turn_rewards(reward.episodes)
    if reward.episodes != before:
        raise Broken("a reward must not change the episode; it did")
    return "turns, rewards and metrics"


def _turn(number: int, text: str, kind: TurnKind = TurnKind.ACT, **changes: Any) -> Turn:
    defaults: dict[str, Any] = {
        "observation": f"observation {number}",
        "observation_tokens": (1, 2, 3),
        "reply": text,
        "reply_tokens": tuple(range(4, 5 + number)),
        "log_probabilities": (-0.5,) * (1 + number),
        "thought": "so" if number % 2 else "",
        "actions": (text,) if text and kind is TurnKind.ACT else (),
        "invalid": None if text else "the reply is empty",
        "effective": bool(text),
        "rewards": {"goal": float(number == 0), "format": 1.0},
        "kind": kind,
        "opens_segment": number == 0,
    }
    return Turn(**{**defaults, **changes})


def _episode(number: int, ending: Ending) -> Trajectory:
    """An episode of one to six turns that ended in this way."""
    task = Task("checked", f"checked/{number}", "train", number)
    turns = tuple(_turn(place, TEXTS[(number + place) % len(TEXTS)]) for place in range(1 + number % 6))
    return Trajectory(task, group=number // 2, replica=number % 2, turns=turns, ending=ending, final_observation="end")


def _episode_with_thoughts() -> Trajectory:
    """An episode of two attempts, with a plan, a reflection and a summary."""
    kinds = [TurnKind.PLAN, TurnKind.ACT, TurnKind.REFLECT, TurnKind.SUMMARY, TurnKind.ACT]
    turns = tuple(_turn(place, "up", kind, attempt=int(place > 2)) for place, kind in enumerate(kinds))
    task = Task("checked", "checked/thoughts", "train", 99)
    return Trajectory(task, 9, 0, turns, Ending.SUCCESS, "end", (Ending.FAILURE,))
