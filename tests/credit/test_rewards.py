"""Rewards are weighted as configured, and anchor states named, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.config.schema import RewardSection
from turnwise.credit.batch import anchors, weighted_rewards
from turnwise.data.trajectory import Ending, Trajectory, Turn, TurnKind
from turnwise.world import Task


def turn(rewards: Mapping[str, float], metrics: Mapping[str, float] | None = None, reply_tokens: int = 3) -> Turn:
    return Turn(
        observation="",
        observation_tokens=(7, 7, 7, 7, 7),
        reply="",
        reply_tokens=(1,) * reply_tokens,
        log_probabilities=(-1.0,) * reply_tokens,
        thought="",
        actions=(),
        invalid=None,
        effective=False,
        rewards=rewards,
        metrics=metrics or {},
    )


def trajectory(name: str, turns: Sequence[Turn], ending: Ending = Ending.FAILURE, replica: int = 0) -> Trajectory:
    return Trajectory(Task("hill", name, "test", 0), 0, replica, tuple(turns), ending, "")


def test_anchors_are_the_states_of_acting_turns_where_the_world_names_all_of_them() -> None:
    here, planned = replace(turn({}), state="here"), replace(turn({}), kind=TurnKind.PLAN)
    assert anchors([trajectory("a", [planned, here]), trajectory("b", [here])]) == [[None, "here"], ["here"]]
    assert anchors([trajectory("a", [here, turn({})])]) is None


def test_a_reward_counts_where_its_level_places_it_with_its_weight() -> None:
    played = trajectory(
        "a", [turn({"tool": 1.0, "exact": 0.0}), turn({"tool": 0.5, "penalty": 1.0}), turn({"exact": 1.0})]
    )
    tool, exact = RewardSection(level="turn", weight=0.5), RewardSection(level="outcome", weight=2.0)
    penalty = RewardSection(level="turn", weight=-0.25)
    # Turn by turn: 0.5 * 1; 0.5 * 0.5 - 0.25 * 1; 0. Outcome: 2 * (0 + 1).
    assert weighted_rewards(played, {"tool": tool, "exact": exact, "penalty": penalty}) == ([0.5, 0.0, 0.0], 2.0)
    # The same content, all of it placed at the outcome: 0.5 * 1.5 + 2 * 1 - 0.25.
    moved = {
        name: RewardSection(level="outcome", weight=each.weight)
        for name, each in {"tool": tool, "exact": exact, "penalty": penalty}.items()
    }
    assert weighted_rewards(played, moved) == ([0.0, 0.0, 0.0], 2.5)


def test_a_reward_that_is_not_configured_counts_nowhere() -> None:
    played = trajectory("a", [turn({"tool": 1.0}), turn({"exact": 1.0})])
    assert weighted_rewards(played, {}) == ([0, 0], 0)
    assert weighted_rewards(played, {"absent": RewardSection(level="outcome", weight=1.0)}) == ([0, 0], 0.0)


def test_a_metric_is_reported_and_never_rewarded() -> None:
    played = trajectory("a", [turn({}, {"searches": 3.0})])
    for level in ("turn", "outcome"):
        assert weighted_rewards(played, {"searches": RewardSection(level=level, weight=1.0)}) == ([0.0], 0.0)
