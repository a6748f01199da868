"""The forecast before training, on episodes whose rewards are given by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from turnwise.config.schema import RewardSection
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.experiment import load
from turnwise.health.initial_signal import InitialSignal, initial_signal
from turnwise.statistics.group_spread import SpreadShare
from turnwise.world import Task

ROLLOUT = load(Path(__file__).parents[2] / "params.yaml").rollout
REWARDS = {
    "goal": RewardSection(level="outcome", weight=1.0),
    "hint": RewardSection(level="turn", weight=0.0),
}


def episode(task: int, **rewards: float) -> Trajectory:
    name = f"hill/validation/{task}"
    turn = Turn("", (1,), "", (2,), (-0.5,), rewards=rewards)
    ending = Ending.SUCCESS if rewards.get("goal") else Ending.FAILURE
    return Trajectory(Task("hill", name, "validation", task), task, 0, (turn,), ending, "")


def judged(
    *episodes: Trajectory, grouped: bool = True, rewards: Mapping[str, RewardSection] = REWARDS, **rollout: int
) -> InitialSignal:
    section = ROLLOUT.model_copy(update={"prompts": 4, "group_size": 4, **rollout})
    return initial_signal(episodes, rewards, section, grouped=grouped)


def test_the_groups_that_will_differ_are_expected_from_those_that_did() -> None:
    # Task 0 is solved in one of its four episodes, task 1 never: half of the groups of four differ, two of four.
    found = judged(episode(0, goal=1.0), *[episode(task) for task in (0, 0, 0, 1, 1, 1, 1)])
    assert (found.success, found.tasks, found.episodes, found.spread) == (0.125, 2, 8, SpreadShare(0.5, 0.5))
    assert found.found() == (
        "sampled success 0.12 in 8 episodes of 2 tasks; rewards differ within about 50% of groups of 4, about 2.0 of 4 "
        "an iteration"
    )
    assert found.warning() == ""


def test_a_reward_without_weight_tells_nothing_and_one_of_turns_does() -> None:
    episodes = [episode(0, hint=1.0), *[episode(0)] * 3]
    assert judged(*episodes).warning().startswith("reinforcement has nothing to begin with: sampled success 0.00")
    weighted = {**REWARDS, "hint": RewardSection(level="turn", weight=0.1)}
    assert not judged(*episodes, rewards=weighted).is_missing


def test_less_than_one_group_of_an_iteration_is_a_warning_that_says_what_may_help() -> None:
    # One of eight tasks differs: 0.5 of 4 groups an iteration, and exactly one of 8.
    episodes = [episode(0, goal=1.0), *[episode(0)] * 3, *[episode(task) for task in range(1, 8) for _ in range(4)]]
    warned = judged(*episodes).warning()
    assert warned.startswith("reinforcement has hardly anything to begin with: ")
    assert "about 12% of groups of 4, about 0.5 of 4 an iteration" in warned
    for help in ("a longer warm start", "easier parameters", "denser rewards", "larger groups (rollout.group_size)"):
        assert help in warned
    assert judged(*episodes, prompts=8).warning() == ""


def test_larger_groups_than_the_evaluation_has_are_judged_by_the_best_that_they_could_be() -> None:
    # One of four tasks differs in two episodes; groups of four differ up to three times as often.
    episodes = [episode(0, goal=1.0), episode(0), *[episode(task) for task in (1, 1, 2, 2, 3, 3)]]
    found = judged(*episodes, prompts=2)
    assert found.spread == SpreadShare(0.25, 0.75) and not found.is_missing
    assert "within 25% to 75% of groups of 4, 0.5 to 1.5 of 2 an iteration" in found.found()


def test_a_policy_that_solves_everything_is_told_that_nothing_is_left() -> None:
    warned = judged(*[episode(task, goal=1.0) for task in (0, 0, 1, 1)]).warning()
    assert warned.startswith("there is nothing left to learn: sampled success 1.00")
    assert warned.endswith("harder parameters of the world")


@pytest.mark.parametrize("goal", [0.0, 1.0])
def test_a_rule_that_compares_all_episodes_needs_no_group_that_differs(goal: float) -> None:
    episodes = [*[episode(0, goal=goal)] * 4, *[episode(1)] * 4]
    assert judged(*episodes).is_missing
    assert judged(*episodes, grouped=False).is_missing == (goal == 0.0)
    said = "no reward differs from another" if goal == 0.0 else "; rewards differ"
    assert said in judged(*episodes, grouped=False).found()


def test_without_groups_the_whole_iteration_is_one_group() -> None:
    # Of four episodes one is solved: of two half differ, and of sixteen all.
    episodes = [episode(0, goal=1.0), episode(0), episode(1), episode(1)]
    assert judged(*episodes, grouped=False).spread.most == 1.0
    assert judged(*episodes, grouped=False, prompts=2, group_size=1).spread == SpreadShare(0.5, 0.5)
    assert judged(*episodes, grouped=False, prompts=1, group_size=1).spread == SpreadShare(0.5, 0.5)
