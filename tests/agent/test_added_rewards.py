"""Rewards of one's own: given to the turns, refused in words, and missing where they cannot be determined."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.agent.added_rewards import RewardFunction, files_of, require_added_rewards, with_added_rewards
from turnwise.agent.loop import RolloutResult
from turnwise.checking.added_rewards import CheckedReward
from turnwise.config.agent import AddedReward, added_rewards
from turnwise.config.schema import RewardSection
from turnwise.credit.batch import weighted_rewards
from turnwise.data.trajectory import Ending, Trajectory, trajectory_arrays
from turnwise.errors import ConfigurationError, ContractError, RewardMissing
from turnwise.world import make_world

HERE = __name__
EPISODES = CheckedReward("", {}).episodes


def length(trajectory: Trajectory, *, scale: float = 1.0) -> float:
    return scale * len(trajectory.turns)


def place(trajectory: Trajectory) -> list[int]:
    return list(range(len(trajectory.turns)))


def of_solved(trajectory: Trajectory) -> float:
    if trajectory.ending is not Ending.SUCCESS:
        raise RewardMissing("no answer")
    return 1.0


def wrong(trajectory: Trajectory) -> list[float]:
    return [0.0] * (len(trajectory.turns) + 1)


VALUE: Any = 0.0
SEVERAL: Any = list


def fixed(trajectory: Trajectory) -> Any:
    return VALUE


def several(trajectory: Trajectory) -> Any:
    return SEVERAL(range(len(trajectory.turns)))


reader = RewardFunction(length, files=("prompt",), at_once=8)
lacking = RewardFunction(length, distributions=("no-such-package",))


def given(name: str, **options: Any) -> RolloutResult:
    return with_added_rewards(
        RolloutResult(list(EPISODES), []), {"own": AddedReward(function=f"{HERE}:{name}", options=options)}
    )


def section(name: str, **options: Any) -> RewardSection:
    return RewardSection(level="outcome", weight=2.0, function=f"{HERE}:{name}", options=options)


def test_one_number_comes_with_the_last_turn_and_counts_by_its_weight() -> None:
    for before, after in zip(EPISODES, given("length", scale=0.5).trajectories, strict=True):
        *first, last = [turn.rewards.get("own") for turn in after.turns]
        assert (set(first) <= {None}, last) == (True, 0.5 * len(before.turns))
        of_turns, outcome = weighted_rewards(trajectory_arrays([after]), {"own": section("length")})
        assert (of_turns.tolist(), outcome.tolist()) == ([[0.0] * len(after.turns)], [len(before.turns)])
        assert all("own" not in turn.rewards for turn in before.turns), "the episode that was given is left as it is"


def test_one_number_per_turn_goes_to_the_turns() -> None:
    for trajectory in given("place").trajectories:
        assert [turn.rewards["own"] for turn in trajectory.turns] == [*range(len(trajectory.turns))]


def test_threads_change_nothing() -> None:
    assert given("reader").trajectories == given("length").trajectories


def test_an_episode_whose_reward_is_missing_is_lost_and_not_paid_nothing() -> None:
    played = given("of_solved")
    assert {each.ending for each in played.trajectories} == {Ending.SUCCESS}
    assert len(played.lost) == len(EPISODES) - len(played.trajectories) > 0
    assert played.lost[0].reason == "the reward own could not be determined: no answer"


def test_as_many_numbers_as_an_episode_has_turns_are_needed() -> None:
    with pytest.raises(ContractError, match=r"checked/0.*\b1\b.*\b2\b.*TW-answer-type"):
        given("wrong")


@pytest.mark.parametrize("value", [1, True, np.float32(0.5), np.int64(2), np.bool_(True), np.array(3.0)])
def test_every_kind_of_number_is_a_reward(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(sys.modules[HERE], "VALUE", value)
    for trajectory in given("fixed").trajectories:
        earned = trajectory.turns[-1].rewards["own"]
        assert (type(earned), earned) == (float, float(value))


@pytest.mark.parametrize("several", [tuple, np.float32, iter])
def test_any_ordered_numbers_are_rewards_of_the_turns(monkeypatch: pytest.MonkeyPatch, several: Any) -> None:
    monkeypatch.setattr(sys.modules[HERE], "SEVERAL", several)
    for trajectory in given("several").trajectories:
        assert [turn.rewards["own"] for turn in trajectory.turns] == [float(n) for n in range(len(trajectory.turns))]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "reward own of checked/0 must be a number; found None"),
        (math.nan, "reward own of checked/0 must be a finite number; found nan"),
        (-math.inf, "reward own of checked/0 must be a finite number; found -inf"),
        ("1.0", "reward own of checked/0 must be a number; found '1.0'"),
        (b"1", "reward own of checked/0 must be a number; found b'1'"),
        ({"goal": 1.0}, "reward own of checked/0 must be a number; found {'goal': 1.0}"),
        ({1.0}, "reward own of checked/0 must be a number; found {1.0}"),
        ([None], "each reward own of checked/0 must be a number; found None"),
        ([[1.0]], "each reward own of checked/0 must be a number; found [1.0]"),
        ([np.array([1.0])], "each reward own of checked/0 must be a number; found array([1.])"),
    ],
)
def test_anything_else_is_refused_with_what_to_raise_instead(
    monkeypatch: pytest.MonkeyPatch, value: Any, said: str
) -> None:
    monkeypatch.setattr(sys.modules[HERE], "VALUE", value)
    with pytest.raises(ContractError) as refused:
        given("fixed")
    advice = "its function must return numbers, or raise tw.RewardMissing where the reward cannot be known"
    assert refused.value.message == f"{said}: {advice}"


@pytest.mark.parametrize(
    ("name", "reward", "said"),
    [
        ("own", section("lenght"), "rewards.own: a reward's function must name a reward in a module"),
        ("own", section("length", scales=1.0), "rewards.own: the options of"),
        ("own", section("lacking"), "needs the package no-such-package"),
        ("own", section("reader"), None),
        ("format", section("length"), "rewards.format must have a name of its own"),
        ("my reward", section("length"), "rewards.my reward must have a name of its own"),
    ],
)
def test_a_reward_that_cannot_be_given_is_refused_before_compute(
    name: str, reward: RewardSection, said: str | None
) -> None:
    world = make_world("bandit", {})
    if said is None:
        require_added_rewards({name: reward}, world)
        return
    with pytest.raises(ConfigurationError) as found:
        require_added_rewards({name: reward}, world)
    assert said in str(found.value)


def test_files_that_options_name_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    added = AddedReward(function=f"{HERE}:reader", options={"prompt": "judge.txt"})
    with pytest.raises(ConfigurationError, match=r"options\.prompt.*judge\.txt.*TW-missing-file"):
        files_of(added)
    (tmp_path / "judge.txt").write_text("how good is it?")
    assert files_of(added) == {"prompt": tmp_path / "judge.txt"}


def test_only_rewards_with_a_function_are_added_and_options_need_one() -> None:
    known = {"goal": RewardSection(level="outcome", weight=1.0), "own": section("length", scale=2.0)}
    assert added_rewards(known) == {"own": AddedReward(function=f"{HERE}:length", options={"scale": 2.0})}
    with pytest.raises(ValueError, match="belongs to a reward with a function of its own"):
        RewardSection(level="turn", weight=1.0, options={"scale": 2.0})
