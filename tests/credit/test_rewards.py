"""Rewards are weighted as configured, and anchor states named, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from stage_samples import trajectory, turn

from turnwise.config.schema import RewardSection
from turnwise.credit.batch import anchors, weighted_rewards
from turnwise.data.trajectory import Ending, Trajectory, TurnKind, trajectory_arrays


def weighted(played: Trajectory, rewards: Mapping[str, RewardSection]) -> tuple[list[float], float]:
    """The weighted rewards of one trajectory alone: of its turns, and of its outcome."""
    of_turns, outcome = weighted_rewards(trajectory_arrays([played]), rewards)
    return of_turns[0].tolist(), outcome.item()


def test_anchors_are_the_states_of_acting_turns_where_the_world_names_all_of_them() -> None:
    here, planned = replace(turn({}), state="here"), replace(turn({}), kind=TurnKind.PLAN)
    assert anchors(trajectory_arrays([trajectory(0, 0, [planned, here]), trajectory(0, 0, [here])])) == [
        [None, "here"],
        ["here"],
    ]
    assert anchors(trajectory_arrays([trajectory(0, 0, [here, turn({})])])) is None


def test_a_reward_counts_where_its_level_places_it_with_its_weight() -> None:
    played = trajectory(
        0, 0, [turn({"tool": 1.0, "exact": 0.0}), turn({"tool": 0.5, "penalty": 1.0}), turn({"exact": 1.0})]
    )
    tool, exact = RewardSection(level="turn", weight=0.5), RewardSection(level="outcome", weight=2.0)
    penalty = RewardSection(level="turn", weight=-0.25)
    # Turn by turn: 0.5 * 1; 0.5 * 0.5 - 0.25 * 1; 0. Outcome: 2 * (0 + 1).
    assert weighted(played, {"tool": tool, "exact": exact, "penalty": penalty}) == ([0.5, 0.0, 0.0], 2.0)
    # The same content, all of it placed at the outcome: 0.5 * 1.5 + 2 * 1 - 0.25.
    moved = {
        name: RewardSection(level="outcome", weight=each.weight)
        for name, each in {"tool": tool, "exact": exact, "penalty": penalty}.items()
    }
    assert weighted(played, moved) == ([0.0, 0.0, 0.0], 2.5)


REWARDS = {
    "tool": RewardSection(level="turn", weight=0.3),
    "penalty": RewardSection(level="turn", weight=-0.1),
    "exact": RewardSection(level="outcome", weight=0.7),
    "form": RewardSection(level="outcome", weight=1.1),
}


@given(st.lists(st.lists(st.tuples(st.dictionaries(st.sampled_from([*REWARDS]), st.floats(-9, 9)), st.integers(0, 1)))))
def test_arrays_give_to_the_bit_what_adding_up_turn_by_turn_gives(
    episodes: list[list[tuple[dict[str, float], int]]],
) -> None:
    played = [
        replace(
            trajectory(0, 0, [replace(turn(rewards), attempt=attempt) for rewards, attempt in turns]),
            earlier_endings=(Ending.FAILURE,),
        )
        for turns in episodes
    ]
    of_turns, outcome = weighted_rewards(trajectory_arrays(played), REWARDS)
    for index, each in enumerate(played):
        for place, one in enumerate(each.turns):
            assert of_turns[index][place] == 0.3 * one.rewards.get("tool", 0.0) - 0.1 * one.rewards.get("penalty", 0.0)
        exact, form = (sum(one.rewards.get(name, 0.0) for one in each.last_attempt) for name in ("exact", "form"))
        assert outcome[index] == 0.7 * exact + 1.1 * form


def test_a_reward_that_is_not_configured_counts_nowhere() -> None:
    played = trajectory(0, 0, [turn({"tool": 1.0}), turn({"exact": 1.0})])
    assert weighted(played, {}) == ([0, 0], 0)
    assert weighted(played, {"absent": RewardSection(level="outcome", weight=1.0)}) == ([0, 0], 0.0)


def test_a_metric_is_reported_and_never_rewarded() -> None:
    played = trajectory(0, 0, [turn({}, metrics={"searches": 3.0})])
    for level in ("turn", "outcome"):
        assert weighted(played, {"searches": RewardSection(level=level, weight=1.0)}) == ([0.0], 0.0)
