"""Packing of sequences of unequal length into micro-batches with little padding.

Sequences are padded on the right and need no attention mask: under causal attention no token sees the padding after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from turnwise.data.arrays import Integers, Numbers, Ragged, SequenceBatch


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """The indices of the sequences in each micro-batch, whose padded size (longest x count) is within the budget.

    `lengths` and `token_budget` are in tokens. Sequences are sorted by length, longest first and equal lengths in the
    order given, so that neighbours have similar lengths and the order is a function of the lengths. A sequence that
    exceeds the budget by itself gets a micro-batch of its own.
    """
    if token_budget < 1:
        raise ValueError(f"the token budget of a micro-batch must be at least 1; found {token_budget}")
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@dataclass(frozen=True)
class MicroBatch:
    """Padded sequences, and the positions of their reply tokens.

    The n-th reply token of the micro-batch is `targets[n]`. It is predicted at position [rows[n], columns[n]] of
    `inputs`, and is itself at the next column. Reply tokens are in the order of the sequences, then of their tokens.
    """

    members: tuple[int, ...]
    """Indices of the sequences within their batch."""
    inputs: torch.Tensor
    """Token ids, [sequences, longest]."""
    rows: torch.Tensor
    """[replies]."""
    columns: torch.Tensor
    """[replies]."""
    targets: torch.Tensor
    """Token ids, [replies]."""
    places: Integers
    """Where the reply tokens are in the arrays of the batch that was laid out, [replies]."""

    @property
    def padded_tokens(self) -> int:
        """The number of positions that are computed, padding included."""
        return self.inputs.numel()


def lay_out(sequences: SequenceBatch, token_budget: int, pad_token: int, device: torch.device) -> list[MicroBatch]:
    """The sequences as micro-batches on `device`, within a budget of padded tokens: see `micro_batches`."""
    return [
        _pad(sequences, members, pad_token, device)
        for members in micro_batches(sequences.lengths.tolist(), token_budget)
    ]


def _pad(sequences: SequenceBatch, members: Sequence[int], pad_token: int, device: torch.device) -> MicroBatch:
    lengths = sequences.lengths[list(members)]
    columns = np.arange(lengths.max())
    is_token = columns < lengths[:, None]
    place = np.where(is_token, sequences.offsets[list(members)][:, None] + columns, 0)
    inputs = np.where(is_token, sequences.tokens[place], pad_token)
    is_reply = is_token & sequences.mask[place]
    if is_reply[:, 0].any():
        raise ValueError("a sequence must begin with an observation: nothing predicts its first token")
    rows, replies = is_reply.nonzero()
    return MicroBatch(
        members=tuple(members),
        inputs=torch.from_numpy(inputs).to(device),
        rows=torch.from_numpy(rows).to(device),
        columns=torch.from_numpy(replies - 1).to(device),
        targets=torch.from_numpy(inputs[rows, replies]).to(device),
        places=place[rows, replies],
    )


def at_reply_tokens(values: Ragged | Numbers, micro_batch: MicroBatch) -> torch.Tensor:
    """The entries of `values` at the micro-batch's reply tokens, [replies] in float32.

    `values` has one number per token of the batch that was laid out, [tokens] or one row per sequence.
    """
    flat = values.values if isinstance(values, Ragged) else values
    return torch.from_numpy(flat[micro_batch.places]).to(torch.float32).to(micro_batch.inputs.device)
