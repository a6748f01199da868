"""Packing of sequences of unequal length into micro-batches with little padding.

Sequences are padded on the right and need no attention mask: under causal attention no token sees the padding after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from turnwise.data.trajectory import TokenSequence


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

    @property
    def padded_tokens(self) -> int:
        """The number of positions that are computed, padding included."""
        return self.inputs.numel()


def lay_out(
    sequences: Sequence[TokenSequence], token_budget: int, pad_token: int, device: torch.device
) -> list[MicroBatch]:
    """The sequences as micro-batches on `device`, within a budget of padded tokens: see `micro_batches`."""
    lengths = [len(sequence.tokens) for sequence in sequences]
    return [_pad(sequences, members, pad_token, device) for members in micro_batches(lengths, token_budget)]


def _pad(
    sequences: Sequence[TokenSequence], members: Sequence[int], pad_token: int, device: torch.device
) -> MicroBatch:
    longest = max(len(sequences[index].tokens) for index in members)
    inputs = torch.full((len(members), longest), pad_token, dtype=torch.long)
    of_reply = torch.zeros((len(members), longest), dtype=torch.bool)
    for row, index in enumerate(members):
        sequence = sequences[index]
        inputs[row, : len(sequence.tokens)] = torch.tensor(sequence.tokens)
        of_reply[row, : len(sequence.tokens)] = torch.tensor(sequence.turn_of_token) >= 0
    if bool(of_reply[:, 0].any()):
        raise ValueError("a sequence must begin with an observation: nothing predicts its first token")
    rows, columns = of_reply.nonzero(as_tuple=True)
    return MicroBatch(
        members=tuple(members),
        inputs=inputs.to(device),
        rows=rows.to(device),
        columns=(columns - 1).to(device),
        targets=inputs[rows, columns].to(device),
    )


def at_reply_tokens(values: Sequence[Sequence[float]], micro_batch: MicroBatch) -> torch.Tensor:
    """The entries of `values` at the micro-batch's reply tokens, [replies] in float32.

    `values` has one row per sequence of the batch, with one number per token.
    """
    rows, columns = micro_batch.rows.tolist(), (micro_batch.columns + 1).tolist()
    picked = [values[micro_batch.members[row]][column] for row, column in zip(rows, columns, strict=True)]
    return torch.tensor(picked, dtype=torch.float32, device=micro_batch.inputs.device)
