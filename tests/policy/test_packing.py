"""Packing: every new token once, every other one found where it was new, and attention over the tokens before."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy.packing import LARGEST_PADDING, Packing
from turnwise.policy.scoring import KNOWN_TOKEN, MicroBatch, by_beginning, lay_out

Rows = list[list[int]]
ROWS = st.lists(st.lists(st.integers(1, 2), min_size=2, max_size=9), min_size=1, max_size=9)


def batch_of(rows: Rows) -> SequenceBatch:
    """Sequences of these tokens, in which the last one is a reply."""
    return SequenceBatch.of(
        [TokenSequence(tuple(row), (-1,) * (len(row) - 1) + (0,), (0.0,) * len(row)) for row in rows]
    )


def micro_batch_of(rows: Rows) -> MicroBatch:
    (micro_batch,) = lay_out(batch_of(rows), 1000, 0, torch.device("cpu"), packed=True)
    return micro_batch


def test_a_packing_by_hand() -> None:
    micro_batch = micro_batch_of([[5, 6, 8], [5, 6, 7, 9], [4, 3]])
    assert micro_batch.members == (2, 1, 0)  # in the order of their tokens
    packing = Packing.of(micro_batch, torch.float32)
    # 4 3 and 5 6 7 9 are new, and the 8 of 5 6 8.
    assert packing.inputs.tolist() == [4, 3, 5, 6, 7, 9, 8]
    assert packing.positions.tolist() == [0, 1, 0, 1, 2, 3, 2]
    assert packing.scored.tolist() == [0, 4, 3]
    long, short, shared = packing.blocks
    assert (long.keys.tolist(), short.keys.tolist(), shared.keys.tolist()) == ([2, 3, 4, 5], [0, 1], [2, 3, 6])
    assert long.mask is None and short.mask is None
    assert shared.queries.tolist() == [6] and shared.mask is not None
    assert packing.attended.tolist() == [4, 5, 0, 1, 2, 3, 6]


@given(ROWS)
def test_each_query_sees_the_tokens_of_its_sequence_up_to_itself(rows: Rows) -> None:
    micro_batch = micro_batch_of(rows)
    packing = Packing.of(micro_batch, torch.float32)
    prefixes = {}
    queries = 0
    for block in packing.blocks:
        of_queries, of_keys = (each.view(block.sequences, -1) for each in (block.queries, block.keys))
        shape = (block.sequences, 1, of_queries.shape[1], of_keys.shape[1])
        mask = torch.zeros(shape).masked_fill_(torch.ones(shape[2:]).triu(1).bool(), -torch.inf)
        seen = (mask if block.mask is None else block.mask)[:, 0] == 0
        for row in range(block.sequences):
            for query, token in enumerate(of_queries[row].tolist()):
                keys = of_keys[row][seen[row, query]]
                if int(packing.attended[token]) == queries:
                    prefixes[token] = tuple(packing.inputs[keys].tolist())
                    assert packing.positions[keys].tolist() == list(range(len(keys))) and keys[-1] == token
                queries += 1
    expected = [tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)]
    assert set(prefixes.values()) == set(expected)
    last = {tuple(row) for row in rows}
    assert len(prefixes) <= len(set(expected)) + sum(expected.count(row) for row in last)
    assert [prefixes[token] for token in packing.scored.tolist()] == [
        tuple(rows[member][:-1]) for member in micro_batch.members
    ]


@given(ROWS)
def test_blocks_of_several_sequences_pad_little(rows: Rows) -> None:
    for block in Packing.of(micro_batch_of(rows), torch.float32).blocks:
        queries, keys = (each.view(block.sequences, -1) for each in (block.queries, block.keys))
        needed = sum(len(set(of.tolist())) * len(set(to.tolist())) for of, to in zip(queries, keys, strict=True))
        assert block.sequences == 1 or queries.numel() * keys.shape[1] <= LARGEST_PADDING * needed


@given(ROWS, st.integers(1, 30))
def test_sequences_in_order_of_their_tokens_fill_micro_batches(rows: Rows, budget: int) -> None:
    batches = by_beginning(batch_of(rows), budget)
    in_order = [index for batch in batches for index in batch]
    assert sorted(in_order) == list(range(len(rows)))
    assert [rows[index] for index in in_order] == sorted(rows)
    for batch in batches:
        assert sum(len(rows[index]) for index in batch) <= budget or len(batch) == 1


def test_a_token_that_the_sequence_before_has_too_counts_as_told() -> None:
    rows = batch_of([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 5], [1, 2, 4]])
    assert by_beginning(rows, 8) == [[0, 1], [2, 3]]
    # 4, then 1 + 3 x 0.25 twice, since a last token is always new, and 1 + 2 x 0.25.
    assert by_beginning(rows, 9, 0.25) == [[0, 1, 2, 3]]
    assert by_beginning(rows, 8, 0.25) == [[0, 1, 2], [3]]


@given(ROWS, st.integers(1, 30))
def test_computed_tokens_are_within_a_budget_that_counts_them(rows: Rows, budget: int) -> None:
    batch = batch_of(rows)
    for members in by_beginning(batch, budget, KNOWN_TOKEN):
        micro_batch = micro_batch_of([rows[member] for member in members])
        computed = len(Packing.of(micro_batch, torch.float32).inputs)
        known = sum(len(rows[member]) for member in members) - computed
        assert computed + KNOWN_TOKEN * known <= budget or len(members) == 1
