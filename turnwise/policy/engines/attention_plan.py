"""Which sequences attend together: sequences of unequal lengths in few attention calls.

Sequences with similar numbers of new tokens share a call, padded to the same number of queries. Keys and values are
used where they are in the cache, without a copy, where the sequences of a call have nearly all slots of a range: the
other slots of the range get a query, too, whose output nothing reads.

Sequences with one new token need neither where `turnwise.policy.engines.single_queries` computes their attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from turnwise.policy.engines.forward import Integers, within

MASK_ENTRIES = 2**22
"""Most entries of one attention mask, unless that of one sequence alone has more."""
SPARSEST_RANGE = 1.25
"""Most slots of a range per sequence in it: with more, copying keys and values costs less than attending to unread."""


@dataclass(frozen=True)
class Attention:
    """Sequences whose queries attend in one call, padded to the same number of queries; a row is a sequence."""

    tokens: torch.Tensor | None
    """The token of each query, among the tokens of the plan: [rows x queries]. None: all tokens, in order."""
    slots: slice | torch.Tensor
    """The slot of each row."""
    length: int
    """The longest sequence, the new tokens included."""
    mask: torch.Tensor | None
    """Added to the scores: [rows, 1, queries x queries per key, length]. None: all sequences are that long."""


@dataclass(frozen=True)
class SingleQueries:
    """Sequences of any lengths with one query each; a row is a sequence."""

    tokens: torch.Tensor | None
    """The token of each row, among the tokens of the plan. None: all tokens, in order."""
    slots: Integers
    """The slot of each row."""
    lengths: Integers
    """The tokens of each row, the new one included."""


@dataclass(frozen=True)
class AttentionPlan:
    """The attention calls of some sequences."""

    calls: list[Attention | SingleQueries]
    unpadded: torch.Tensor | None
    """The query of each token, among those of all calls; None: all queries, in order."""


def visibility(context_length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What `plan_attention` cuts masks from: as many zeros as a context has tokens, then as many times -inf."""
    return torch.zeros(2 * context_length, dtype=dtype, device=device).index_fill_(
        0, torch.arange(context_length, 2 * context_length, device=device), -torch.inf
    )


def plan_attention(
    slots: Integers, past: Integers, counts: Integers, *, queries_per_key: int, visible: torch.Tensor, singly: bool
) -> AttentionPlan:
    """The attention calls of sequences in these slots, with so many past and new tokens.

    Tokens are numbered sequence by sequence. `queries_per_key` heads share a key-value head; `visible` is that of
    `visibility`, whose type and device the masks have. With `singly`, sequences with one new token are
    `SingleQueries`.
    """
    begins = counts.cumsum() - counts
    calls: list[Attention | SingleQueries] = []
    unpadded = np.empty(int(counts.sum()), dtype=np.int64)
    queries_so_far = 0
    many = np.arange(len(counts))
    if singly and (counts == 1).any():
        single, many = np.nonzero(counts == 1)[0], np.nonzero(counts > 1)[0]
        tokens = torch.from_numpy(begins[single]) if len(many) else None
        calls.append(SingleQueries(tokens, slots[single], past[single] + 1))
        unpadded[begins[single]] = np.arange(len(single))
        queries_so_far = len(single)
    for together in _together(many, past, counts, queries_per_key):
        queries, length = int(counts[together].max()), int((past + counts)[together].max())
        row_slots, places, rows = _slots_of_rows(slots[together])
        row_tokens = np.zeros((rows, queries), dtype=np.int64)
        # A padded query repeats the sequence's last token.
        row_tokens[places] = begins[together, None] + np.minimum(np.arange(queries), counts[together, None] - 1)
        row_past = np.zeros(rows, dtype=np.int64)
        row_past[places] = past[together]
        query_places = np.repeat(queries_so_far + places * queries, counts[together]) + within(counts[together])
        unpadded[np.repeat(begins[together], counts[together]) + within(counts[together])] = query_places
        queries_so_far += rows * queries
        is_padded = int(counts[together].min()) < queries or not np.array_equal(places, np.arange(rows))
        is_whole = len(together) == len(slots) and not is_padded
        calls.append(
            Attention(
                tokens=None if is_whole else torch.from_numpy(row_tokens.ravel()).to(visible.device),
                slots=row_slots if isinstance(row_slots, slice) else torch.from_numpy(row_slots).to(visible.device),
                length=length,
                mask=_mask(row_past, queries, queries_per_key, length, visible),
            )
        )
    if calls[0].tokens is None:
        return AttentionPlan(calls, None)
    return AttentionPlan(calls, torch.from_numpy(unpadded).to(visible.device))


def _together(rest: Integers, past: Integers, counts: Integers, queries_per_key: int) -> Iterator[Integers]:
    """The sequences of each call: those with the most new tokens and those with at least half as many, and so on."""
    while len(rest):
        queries = int(counts[rest].max())
        similar = 2 * counts[rest] >= queries
        candidates = rest[similar]
        entries = np.arange(1, len(candidates) + 1) * np.maximum.accumulate((past + counts)[candidates])
        fitting = max(1, int(np.searchsorted(entries * queries * queries_per_key, MASK_ENTRIES, side="right")))
        yield candidates[:fitting]
        rest = np.sort(np.concatenate([candidates[fitting:], rest[~similar]]))


def _slots_of_rows(slots: Integers) -> tuple[slice | Integers, Integers, int]:
    """The slots of a call's rows, the row of each sequence, and the number of rows."""
    first, span = int(slots.min()), int(slots.max() - slots.min()) + 1
    if span <= SPARSEST_RANGE * len(slots):
        return slice(first, first + span), slots - first, span
    return slots, np.arange(len(slots)), len(slots)


def _mask(
    past: Integers, queries: int, queries_per_key: int, length: int, visible: torch.Tensor
) -> torch.Tensor | None:
    """See `Attention.mask`; `past` is that of each row.

    The mask of a token that sees n keys is n zeros, then -inf: `visible` from n places before the middle on. Copying
    such pieces is ten times faster than comparing positions. A padded query may stand beyond the end of a context that
    is nearly full; it sees all of it.
    """
    if queries == 1 and (past + 1 == length).all():
        return None
    key_counts = past[:, None] + np.tile(np.arange(1, queries + 1), queries_per_key)
    begins = torch.from_numpy(np.maximum(len(visible) // 2 - key_counts.ravel(), 0)).to(visible.device)
    return visible.unfold(0, length, 1).index_select(0, begins).view(len(past), 1, -1, length)
