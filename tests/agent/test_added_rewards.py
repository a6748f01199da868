"""Rewards of one's own: given to the turns, refused in words, and missing where they cannot be determined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.agent.added_rewards import RewardFunction, files_of, require_added_rewards, with_added_rewards
from turnwise.agent.loop import RolloutResult
from turnwise.checking.added_rewards import CheckedReward
from turnwise.config.agent_rewards import AddedReward, added_rewards
from turnwise.config.schema import RewardSection
from turnwise.credit.batch import weighted_rewards
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.errors import ConfigurationError, RewardMissing
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
        assert weighted_rewards(after, {"own": section("length")}) == ([0.0] * len(after.turns), len(before.turns))
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


def test_anything_but_a_number_per_episode_or_turn_is_a_bug_that_is_raised() -> None:
    with pytest.raises(ValueError, match="the reward own must be a finite number, or one per turn"):
        given("wrong")


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
    with pytest.raises(ConfigurationError, match=r"options\.prompt must name a file; found nothing at .*judge\.txt"):
        files_of(added)
    (tmp_path / "judge.txt").write_text("how good is it?")
    assert files_of(added) == {"prompt": tmp_path / "judge.txt"}


def test_only_rewards_with_a_function_are_added_and_options_need_one() -> None:
    known = {"goal": RewardSection(level="outcome", weight=1.0), "own": section("length", scale=2.0)}
    assert added_rewards(known) == {"own": AddedReward(function=f"{HERE}:length", options={"scale": 2.0})}
    with pytest.raises(ValueError, match="belongs to a reward with a function of its own"):
        RewardSection(level="turn", weight=1.0, options={"scale": 2.0})
