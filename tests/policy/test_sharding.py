"""How sequences are dealt to the processes that train a model together."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from policy_samples import PAD, two_turn_sequences

from turnwise.data.arrays import SequenceBatch
from turnwise.policy.sharding import Peers, shares

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def test_the_longest_goes_first_to_the_process_with_the_fewest_tokens() -> None:
    assert shares([5, 9, 4, 4, 3], 2) == [[1, 3], [0, 2, 4]]
    assert shares([2, 2, 2], 2) == [[0, 2], [1]]
    assert shares([7], 3) == [[0], [], []]


@given(LENGTHS, st.integers(1, 5))
def test_each_sequence_has_one_process_and_tokens_differ_by_a_sequence_at_most(lengths: list[int], size: int) -> None:
    dealt = shares(lengths, size)
    assert sorted(index for own in dealt for index in own) == list(range(len(lengths)))
    tokens = [sum(lengths[index] for index in own) for own in dealt]
    assert max(tokens) - min(tokens) <= max(lengths)


def test_processes_make_equally_many_passes_and_compute_each_reply_token_once() -> None:
    sequences = SequenceBatch.of(two_turn_sequences())
    for size, budget in ((2, 20), (2, 1000), (4, 13), (8, 40)):
        laid_out = [
            Peers(rank, size, mesh=None).lay_out(sequences, budget, PAD, torch.device("cpu"))  # type: ignore[arg-type]
            for rank in range(size)
        ]
        assert len({len(own) for own in laid_out}) == 1
        places = [place for own in laid_out for micro_batch in own for place in micro_batch.places.tolist()]
        assert sorted(places) == sequences.mask.nonzero()[0].tolist()
        for micro_batch in (each for own in laid_out for each in own):
            assert micro_batch.inputs.numel() <= max(budget, micro_batch.inputs.shape[1])
            assert len(micro_batch.targets) or not micro_batch.members
