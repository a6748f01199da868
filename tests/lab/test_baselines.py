"""What is scored of the scripted baseline policies, by hand."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from lab.baselines import settings_of
from turnwise.checking.baselines import score
from turnwise.checking.playing import play
from turnwise.world import (
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    world_class,
)


class Climb(Environment):
    """`up` as often as the ladder has rungs."""

    def __init__(self, rungs: int) -> None:
        self.rungs = self.left = rungs

    def reset(self) -> Observation:
        return Observation(f"{self.left} rungs to go")

    def step(self, action: str) -> Step:
        self.left -= action == "up"
        done = self.left == 0
        rewards = {"effort": -0.5} | ({"top": 1.0} if done else {})
        return Step(Observation(f"{self.left} rungs to go"), rewards, terminated=done, success=done)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("on", ("up",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("any", ("up" if generator.integers(2) else "wait",))


class Ladders(World):
    """Four test tasks, with 1, 2, 3 and 4 rungs."""

    name: ClassVar[str] = "ladders"
    version: ClassVar[str] = "1"
    instruction = "Climb."
    grammar = "up or wait"
    rewards: ClassVar[Mapping[str, Reward]] = {
        "effort": Reward("", "turn", 2.0),
        "top": Reward("", "outcome", 1.0),
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"usual": {"turns": 3}, "long": {"turns": 9}}

    def __init__(self, *, turns: int = 3) -> None:
        self.limits = Limits(turns=turns)

    def split_size(self, split: Split) -> int | None:
        return 4

    def tasks(self, split: Split, count: int) -> list[Task]:
        if count > 4:
            raise ValueError(f"count must be at most 4; found {count}")
        return [Task(self.name, f"ladders/{split}/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Climb:
        return Climb(task.seed + 1)


def test_a_score_by_hand() -> None:
    # In three turns the oracle climbs the ladders of 1, 2 and 3 rungs; effort costs 2 x 0.5 a turn, and the top pays 1:
    # returns 0, -1, -2 and, on the fourth, -3; turns 1, 2, 3 and 3.
    found = score(Ladders(), "oracle", 3, 0)
    assert (found.baseline, found.tasks, found.episodes) == ("oracle", 3, 3)
    all_four = score(Ladders(), "oracle", 4, 0)
    assert (all_four.success.value, all_four.success.method) == (0.75, "Wilson")
    assert (all_four.rewards.value, all_four.turns.value) == (-1.5, 2.25)


def test_a_small_task_set_is_played_again_with_other_decisions() -> None:
    found = score(Ladders(), "random", 1500, 0)
    assert (found.tasks, found.episodes, found.success.count) == (4, 1500, 4)
    # Heads in three flips: at least one 7/8, two 1/2, three 1/8, four 0. The mean of the four is 3/8; its standard
    # error over 375 flips of each is 0.009.
    assert abs(found.success.value - 3 / 8) < 0.03
    assert found.success.method == "percentile bootstrap"


def test_episodes_are_rounded_up_so_that_every_task_counts_alike() -> None:
    assert score(Ladders(), "random", 5, 0).episodes == 8


def test_another_seed_gives_other_episodes_and_the_same_seed_the_same() -> None:
    world = Ladders()
    assert score(world, "random", 40, 0) == score(world, "random", 40, 0)
    assert score(world, "random", 40, 0) != score(world, "random", 40, 1)


def test_settings_are_the_defaults_and_the_presets_that_differ() -> None:
    assert settings_of(Ladders) == ("", "long")
    assert settings_of(world_class("bandit")) == ("", "ragen-paper", "ragen-swapped")
    assert settings_of(world_class("search")) == ("",)
    # The preset `agentgym` is the default, its list of depths a tuple there.
    assert settings_of(world_class("textcraft")) == ("", "compact")


def test_a_baseline_that_a_world_does_not_have_is_refused() -> None:
    with pytest.raises(
        ValueError, match="baseline policy must be one of the world's baseline policies; found 'expert'"
    ):
        play(Ladders(), Ladders().tasks("test", 1)[0], 0, "expert")
