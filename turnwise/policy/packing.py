"""Where the tokens of a micro-batch lie side by side: what sequences begin with alike lies there once.

Under causal attention the state of a token depends on the tokens before it alone. So sequences that begin with the same
tokens have the same states there, and the gradient of such a state is the sum of theirs. The episodes of a group share
their prompt, and often their first turns.

A token is **new** where its sequence differs from the one before it in the micro-batch, or has differed earlier. Only
new tokens have states; the last token of a sequence always counts as new. All other tokens are those of an earlier
sequence, which attention looks up. `turnwise.policy.scoring.by_beginning` brings sequences that begin alike together.

Attention is computed in **blocks** of sequences with similar numbers of new tokens and of all tokens. A block pads its
queries, the new tokens, and its keys, all tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from turnwise.policy.scoring import MicroBatch

LARGEST_PADDING = 1.3
"""Most scores that a block of attention computes for each one that is needed, unless it has one sequence only."""
QUERIES_OF_A_STRETCH = 64
"""So many of some hundred queries cost the least processor time: with fewer, products are slow, and with more, the half
of the scores that no query sees is computed. 32 and 128 cost up to a fifth more."""


@dataclass(frozen=True)
class Stretch:
    """Successive queries of a block, and the keys that any of them sees."""

    queries: slice
    seen_by_all: int
    """The number of leading keys that all of these queries see."""
    keys: int
    """The number of leading keys that any of these queries sees."""
    mask: torch.Tensor
    """Added to the scores of the keys that not all see, [sequences, 1, 1, queries, keys - seen by all]."""


@dataclass(frozen=True)
class Block:
    """Sequences whose queries attend in one call."""

    queries: torch.Tensor
    """The token of each query, [sequences x queries]: after the last new token of a sequence, that token again."""
    keys: torch.Tensor
    """The token of each key, [sequences x keys]: after the last token of a sequence, that token again."""
    seen: torch.Tensor
    """The number of leading keys that each query sees, [sequences, queries]."""
    dtype: torch.dtype
    """What attention is computed in."""

    @property
    def sequences(self) -> int:
        """How many sequences the block has."""
        return len(self.seen)

    @cached_property
    def mask(self) -> torch.Tensor | None:
        """Added to the scores, [sequences, 1, queries, keys]: -inf at keys that the query does not see.

        None: all tokens are new, so that query n sees the first n keys.
        """
        if int(self.seen[:, 0].max()) == 1:
            return None
        return self._mask(self.seen, 0, len(self.keys) // self.sequences)[:, None]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The queries, `QUERIES_OF_A_STRETCH` at a time."""
        stretches = []
        for begin in range(0, self.seen.shape[1], QUERIES_OF_A_STRETCH):
            queries = slice(begin, begin + QUERIES_OF_A_STRETCH)
            seen = self.seen[:, queries]
            fewest, most = int(seen.min()), int(seen.max())
            mask = self._mask(seen, fewest, most)[:, None, None]
            stretches.append(Stretch(queries, seen_by_all=fewest, keys=most, mask=mask))
        return stretches

    def _mask(self, seen: torch.Tensor, first: int, end: int) -> torch.Tensor:
        """For the keys from the first one to before the end: [sequences, queries, end - first]."""
        unseen = torch.arange(first, end) >= seen[..., None]
        return torch.zeros(unseen.shape, dtype=self.dtype).masked_fill_(unseen, -torch.inf)


@dataclass(frozen=True)
class Packing:
    """The new tokens of a micro-batch, sequence after sequence. "Token" below is a place among them."""

    inputs: torch.Tensor
    """Token ids, [tokens]."""
    positions: torch.Tensor
    """Of the tokens within their sequences, [tokens]."""
    scored: torch.Tensor
    """The tokens before reply tokens, whose states predict these: [replies]."""
    blocks: list[Block]
    attended: torch.Tensor
    """The query of each token, among those of all blocks: [tokens]."""

    @classmethod
    def of(cls, micro_batch: MicroBatch, dtype: torch.dtype) -> Packing:
        """The packing of a micro-batch, whose attention is computed in this type."""
        inputs, lengths = micro_batch.inputs, micro_batch.lengths
        sequences, columns = torch.arange(len(inputs))[:, None], torch.arange(inputs.shape[1])
        known = _count_known(inputs, lengths)
        new = lengths - known
        is_new = (columns >= known[:, None]) & (columns < lengths[:, None])
        begins = new.cumsum(0) - new
        # The sequence in which a token was new: the last one so far that knew less.
        owner = torch.where(columns >= known[:, None], sequences, 0).cummax(0).values
        token = begins[owner] + columns - known[owner]
        positions = columns.expand_as(inputs)[is_new]
        blocks: list[Block] = []
        attended, queries_so_far = torch.empty_like(positions), 0
        for members in _together(new.tolist(), lengths.tolist()):
            most_queries, most_keys = int(new[members].max()), int(lengths[members].max())
            query = known[members, None] + torch.arange(most_queries).minimum(new[members, None] - 1)
            key = torch.arange(most_keys).minimum(lengths[members, None] - 1)
            queries, keys = token[members].gather(1, query).flatten(), token[members].gather(1, key).flatten()
            unpadded = (torch.arange(most_queries) < new[members, None]).flatten().nonzero().squeeze(1)
            attended[queries[unpadded]] = queries_so_far + unpadded
            queries_so_far += len(queries)
            blocks.append(Block(queries, keys, query + 1, dtype))
        return cls(
            inputs=inputs[is_new],
            positions=positions,
            scored=token[micro_batch.rows, micro_batch.columns],
            blocks=blocks,
            attended=attended,
        )


def _count_known(inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """How many leading tokens of each sequence are those of the sequence before it, the last one never: [sequences]."""
    alike = (inputs[1:] == inputs[:-1]).to(torch.int64).cumprod(1).sum(1)
    known = torch.cat([alike.new_zeros(1), alike.minimum(lengths[:-1])])
    return known.minimum(lengths - 1)


def _together(new: list[int], lengths: list[int]) -> Iterator[list[int]]:
    """The sequences of each block. Those without known tokens are apart, since they need no mask."""
    for has_known in (False, True):
        indices = [index for index in range(len(new)) if (new[index] < lengths[index]) == has_known]
        block: list[int] = []
        needed = most = longest = 0
        for index in sorted(indices, key=lambda index: (-new[index], -lengths[index], index)):
            needed, longest = needed + new[index] * lengths[index], max(longest, lengths[index])
            most = max(most, new[index])
            if block and most * longest * (len(block) + 1) > LARGEST_PADDING * needed:
                yield block
                block, needed, most, longest = [], new[index] * lengths[index], new[index], lengths[index]
            block.append(index)
        if block:
            yield block
