"""Trajectories: turn by turn, and as the token sequences that an update reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from data_samples import TASK, TWO_TURNS, trajectories, turn
from hypothesis import given

from turnwise.data.trajectory import Ending, LostEpisode, TokenSequence, Trajectory, TurnKind


def test_a_trajectory_flattens_to_observation_and_reply_turn_by_turn() -> None:
    (sequence,) = TWO_TURNS.segments()
    assert sequence == TokenSequence(
        tokens=(10, 11, 1, 2, 3, 12, 4, 5),
        turn_of_token=(-1, -1, 0, 0, 0, -1, 1, 1),
        log_probabilities=(0.0, 0.0, -0.125, -0.25, -0.375, 0.0, -0.5, -0.625),
    )
    assert sequence.mask == (0, 0, 1, 1, 1, 0, 1, 1)


def test_each_segment_is_a_sequence_and_turns_are_numbered_through_all() -> None:
    first, second = TWO_TURNS.turns
    told = turn([20, 21, 22], [6], kind=TurnKind.SUMMARY, trained=False)
    opening = turn([30, 31], [7, 8], opens_segment=True)
    trajectory = replace(TWO_TURNS, turns=(first, told, opening, second))
    assert trajectory.segment_turns == (range(0, 2), range(2, 4))
    assert [sequence.tokens for sequence in trajectory.segments()] == [
        (10, 11, 1, 2, 3, 20, 21, 22, 6),
        (30, 31, 7, 8, 12, 4, 5),
    ]
    assert [sequence.turn_of_token for sequence in trajectory.segments()] == [
        (-1, -1, 0, 0, 0, -1, -1, -1, -1),
        (-1, -1, 2, 2, -1, 3, 3),
    ]
    assert trajectory.segments(every_reply=True)[0].turn_of_token == (-1, -1, 0, 0, 0, -1, -1, -1, 1)
    assert [trajectory.count(kind) for kind in (TurnKind.ACT, TurnKind.SUMMARY, TurnKind.PLAN)] == [3, 1, 0]


@given(trajectories)
def test_segments_hold_every_turn_once_and_in_order(trajectory: Trajectory) -> None:
    turns = [index for turns in trajectory.segment_turns for index in turns]
    assert turns == list(range(len(trajectory.turns)))
    tokens = [token for turn in trajectory.turns for token in (*turn.observation_tokens, *turn.reply_tokens)]
    assert [token for sequence in trajectory.segments() for token in sequence.tokens] == tokens
    assert [len(turns) > 0 for turns in trajectory.segment_turns] == [True] * len(trajectory.segments())


def test_no_trajectory_ends_with_a_world_that_was_lost() -> None:
    assert LostEpisode(TASK, 0, 0, "hung").ending is Ending.WORLD_LOST
    with pytest.raises(ValueError, match="is a LostEpisode"):
        replace(TWO_TURNS, ending=Ending.WORLD_LOST)
    with pytest.raises(ValueError, match="is a LostEpisode"):
        replace(TWO_TURNS, earlier_endings=(Ending.WORLD_LOST,))


def test_a_total_is_the_sum_over_turns_of_a_reward_or_a_metric() -> None:
    assert TWO_TURNS.total("goal") == -0.75
    assert TWO_TURNS.total("format") == 1.0
    assert TWO_TURNS.total("searches") == 3.0
    assert TWO_TURNS.total("never emitted") == 0.0


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.WORLD_LOST])
def test_only_what_the_world_ended_was_not_cut_off(ending: Ending) -> None:
    trajectory = Trajectory(TASK, 0, 0, (), ending, "")
    assert trajectory.success == (ending.value == "success")
    assert ending.truncated == (ending.value in ("turn_limit", "action_limit", "token_budget"))
