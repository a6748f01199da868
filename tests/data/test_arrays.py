"""Rows of unequal length as flat arrays: worked by hand, and against plain lists."""

from __future__ import annotations

import numpy as np
import pytest
from data_samples import TWO_TURNS, trajectories, turn
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.data.arrays import Ragged, SequenceBatch, TokenSequence, joined, offsets_of
from turnwise.data.trajectory import Ending, Trajectory, trajectory_arrays

rows = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=6)


def test_offsets_say_where_rows_begin_and_where_the_last_one_ends() -> None:
    assert offsets_of([2, 0, 3]).tolist() == [0, 2, 2, 5]
    assert offsets_of([]).tolist() == [0]


@given(rows)
def test_rows_come_back_as_they_were_given(given_rows: list[list[int]]) -> None:
    ragged = Ragged.of(given_rows, np.int64)
    assert ragged.tolist() == given_rows
    assert [row.tolist() for row in ragged] == given_rows
    assert ragged.lengths.tolist() == [len(row) for row in given_rows]
    assert Ragged.of((np.array(row, dtype=np.int64) for row in given_rows), np.int64) == ragged
    assert Ragged.with_lengths(ragged.values, ragged.lengths) == ragged


@given(
    rows.flatmap(lambda found: st.tuples(st.just(found), st.lists(st.sampled_from(range(len(found) or 1)), max_size=5)))
)
def test_a_selection_takes_the_rows_in_its_own_order(case: tuple[list[list[int]], list[int]]) -> None:
    given_rows, chosen = case
    chosen = chosen if given_rows else []
    ragged = Ragged.of(given_rows, np.int64)
    assert ragged.select(chosen).tolist() == [given_rows[row] for row in chosen]
    assert ragged.values[ragged.places(chosen)].tolist() == [entry for row in chosen for entry in given_rows[row]]


@given(rows)
def test_going_backward_meets_every_entry_once_the_last_ones_first(given_rows: list[list[int]]) -> None:
    ragged = Ragged.of(given_rows, np.int64)
    met: dict[int, list[int]] = {}
    for some, places in ragged.backward():
        for row, place in zip(some.tolist(), places.tolist(), strict=True):
            met.setdefault(row, []).append(int(ragged.values[place]))
    assert met == {number: row[::-1] for number, row in enumerate(given_rows) if row}


def test_rows_that_do_not_fit_their_entries_are_refused_and_a_negative_index_counts_from_the_end() -> None:
    with pytest.raises(ValueError, match="rows must have 3 entries together; found 2"):
        Ragged(np.zeros(2), np.array([0, 3]))
    ragged = Ragged.of([[1.0], [2.0, 3.0]])
    assert ragged[-1].tolist() == [2.0, 3.0]
    with pytest.raises(IndexError):
        ragged[2]


def test_equal_rows_are_equal_also_where_they_are_not_numbers() -> None:
    nan = float("nan")
    assert Ragged.of([[nan], [1.0]]) == Ragged.of([[nan], [1.0]])
    assert Ragged.of([[1.0], [2.0]]) != Ragged.of([[1.0, 2.0]]), "the same entries in other rows"
    assert Ragged.of([[1.0]]) != [[1.0]]


FIRST = TokenSequence((10, 11, 1, 2), (-1, -1, 0, 0), (0.0, 0.0, -0.5, -0.25))
SECOND = TokenSequence((12, 3), (-1, 1), (0.0, -1.0))


def test_sequences_are_read_back_one_by_one() -> None:
    batch = SequenceBatch.of([FIRST, SECOND])
    assert list(batch) == [FIRST, SECOND] and batch[1] == SECOND and len(batch) == 2
    assert SequenceBatch.of(batch) is batch
    assert batch.mask.tolist() == [False, False, True, True, False, True]
    assert (batch.lengths.tolist(), batch.reply_counts.tolist()) == ([4, 2], [2, 1])
    assert FIRST.mask == (0, 0, 1, 1)
    assert joined([batch, batch.select([1])]) == SequenceBatch.of([FIRST, SECOND, SECOND])
    assert batch.select([1, 0]) == SequenceBatch.of([SECOND, FIRST])


def test_numbers_per_reply_token_are_spread_over_the_tokens() -> None:
    batch = SequenceBatch.of([FIRST, SECOND])
    numbers = np.array([5.0, 6.0, 7.0])
    assert batch.reply_rows(numbers).tolist() == [[5.0, 6.0], [7.0]]
    assert batch.at_replies(numbers).tolist() == [[0.0, 0.0, 5.0, 6.0], [0.0, 7.0]]
    assert batch.rows(batch.tokens).tolist() == [[10, 11, 1, 2], [12, 3]]
    with pytest.raises(ValueError, match="same number of entries"):
        SequenceBatch(np.zeros(2, int), np.zeros(2, int), np.zeros(3), np.array([0, 2]))


def test_a_trajectory_of_two_turns_worked_by_hand() -> None:
    arrays = trajectory_arrays([TWO_TURNS])
    sequences, owners = arrays.segments()
    # Observations 10 11 and 12, replies 1 2 3 and 4 5, with log-probabilities of -1/8 of the token.
    assert list(sequences) == [
        TokenSequence(
            (10, 11, 1, 2, 3, 12, 4, 5),
            (-1, -1, 0, 0, 0, -1, 1, 1),
            (0.0, 0.0, -0.125, -0.25, -0.375, 0.0, -0.5, -0.625),
        )
    ]
    assert owners.tolist() == [0]
    assert arrays.reply_rows(np.arange(5.0)).tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert arrays.token_rows(np.arange(8.0)).tolist() == [list(range(8))]


def test_a_turn_that_is_not_trained_on_is_read_and_every_segment_has_its_owner() -> None:
    frozen = turn([20], [6], trained=False)
    later = turn([21, 22], [7, 8], opens_segment=True)
    other = Trajectory(TWO_TURNS.task, 4, 0, (frozen, later), Ending.FAILURE, "")
    arrays = trajectory_arrays([other, TWO_TURNS])
    assert arrays.group.tolist() == [4, 3]
    sequences, owners = arrays.segments()
    assert owners.tolist() == [0, 0, 1]
    assert sequences[0] == TokenSequence((20, 6), (-1, -1), (0.0, 0.0))
    assert sequences[1].turn_of_token == (-1, -1, 1, 1)
    assert arrays.segments(every_reply=True)[0][0] == TokenSequence((20, 6), (-1, 0), (0.0, -0.75))
    assert arrays.trained_replies.tolist() == [False, True, True, True, True, True, True, True]


@settings(max_examples=40)
@given(st.lists(trajectories, max_size=4))
def test_arrays_of_several_trajectories_are_those_of_each(found: list[Trajectory]) -> None:
    arrays = trajectory_arrays(found)
    assert len(arrays) == len(found)
    for every_reply in (False, True):
        sequences, owners = arrays.segments(every_reply=every_reply)
        alone = [each.segments(every_reply=every_reply) for each in found]
        assert list(sequences) == [sequence for of_one in alone for sequence in of_one]
        assert owners.tolist() == [index for index, of_one in enumerate(alone) for _ in of_one]
    backward = list(range(len(found)))[::-1]
    chosen, _ = arrays.select(backward).segments()
    assert list(chosen) == [sequence for index in backward for sequence in found[index].segments()]
