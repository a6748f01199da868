"""Micro-batches: every sequence once, within the budget, in a fixed order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy.scoring import at_reply_tokens, by_length, lay_out


def test_micro_batches_by_hand() -> None:
    # Longest first: 9, 5, 5, 3, 1. Budget 10: 9 alone; 5 + 5 = 2 x 5; then 3 and 1 = 2 x 3.
    assert by_length([3, 5, 9, 5, 1], 10) == [[2], [1, 3], [0, 4]]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_every_sequence_is_in_one_micro_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = by_length(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert max(lengths[index] for index in batch) * len(batch) <= budget or len(batch) == 1


def test_a_budget_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        by_length([1], 0)


def test_reply_tokens_are_found_one_column_after_what_predicts_them() -> None:
    sequences = SequenceBatch.of(
        [
            TokenSequence((10, 11, 12), (-1, 0, 0), (0.0, -0.1, -0.2)),
            TokenSequence((20, 21, 22, 23), (-1, 0, -1, 1), (0.0, -0.3, 0.0, -0.4)),
        ]
    )
    (micro_batch,) = lay_out(sequences, 100, 0, torch.device("cpu"))
    assert micro_batch.members == (1, 0)
    assert micro_batch.inputs.tolist() == [[20, 21, 22, 23], [10, 11, 12, 0]]
    assert micro_batch.targets.tolist() == [21, 23, 11, 12]
    assert micro_batch.inputs[micro_batch.rows, micro_batch.columns].tolist() == [20, 22, 10, 11]
    assert sequences.tokens[micro_batch.places].tolist() == micro_batch.targets.tolist()
    assert at_reply_tokens(sequences.log_probabilities, micro_batch).tolist() == pytest.approx([-0.3, -0.4, -0.1, -0.2])


def test_positions_count_with_padding_unless_the_forward_pass_leaves_it_out() -> None:
    sequences = SequenceBatch.of([TokenSequence((3,) * length, (-1,) * length, (0.0,) * length) for length in (2, 5)])
    for packed, positions in ((False, 10), (True, 7)):
        (micro_batch,) = lay_out(sequences, 100, 0, torch.device("cpu"), packed=packed)
        assert micro_batch.padded_tokens == positions


def test_a_sequence_that_begins_with_a_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="begin with an observation"):
        lay_out(SequenceBatch.of([TokenSequence((5, 6), (0, 0), (0.0, 0.0))]), 10, 0, torch.device("cpu"))
