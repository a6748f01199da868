"""What the embedded engine asks of a model: next-token logits of many sequences that grow.

There are two ways to compute them:

* `turnwise.policy.engines.fused`, for decoders like Llama's, Qwen2's and Qwen3's;
* `WholeForward`, here, for any other causal transformers model: its own forward pass with a transformers cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class NewTokens:
    """The tokens by which some sequences grow. All arrays are int64; those but the last have one entry per sequence."""

    slots: Integers
    """The slot that holds each sequence: no two have the same."""
    past: Integers
    """Tokens of each sequence that are in its slot already."""
    counts: Integers
    """New tokens of each sequence, at least 1."""
    tokens: Integers
    """Token ids, those of the first sequence first."""

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.slots)

    def select(self, rows: Integers) -> NewTokens:
        """These sequences only, in this order."""
        counts = self.counts[rows]
        begins = (self.counts.cumsum() - self.counts)[rows]
        tokens = self.tokens[np.repeat(begins, counts) + within(counts)]
        return NewTokens(self.slots[rows], self.past[rows], counts, tokens)


def within(counts: Integers) -> Integers:
    """0, 1, ... count - 1 for each count, concatenated."""
    ends: Integers = counts.cumsum()
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)


class Forward(Protocol):
    """Computes the logits of sequences that grow."""

    keeps_past: bool
    """Whether sequences can begin in any call and grow by any number of tokens, and stay in their slots until others
    take these. False: all begin in one call, with `past` 0, and grow by one token in each later one."""

    def next_logits(self, new: NewTokens) -> torch.Tensor:
        """Add the tokens to their sequences and return the logits after each one's last: [sequences, vocabulary]."""


class WholeForward:
    """The model's own forward pass, with a transformers cache for the sequences that began together."""

    keeps_past = False

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._slots = np.zeros(0, dtype=np.int64)
        self._cache: Any = None
        self._attended = torch.zeros(0)

    def next_logits(self, new: NewTokens) -> torch.Tensor:
        """Logits after the last token of each sequence; see `Forward`. The first tokens are padded on the left."""
        if new.past.any():
            self._keep(new.slots)
            inputs = torch.from_numpy(new.tokens[:, None])
            attended = torch.cat([self._attended, self._attended.new_ones(len(new), 1)], dim=1)
        else:
            self._slots, self._cache = new.slots, DynamicCache(config=self._model.config)
            longest = int(new.counts.max())
            inputs = torch.zeros((len(new), longest), dtype=torch.long)
            attended = torch.arange(longest) >= longest - torch.from_numpy(new.counts)[:, None]
            inputs[attended] = torch.from_numpy(new.tokens)
            attended = attended.long().to(self._model.device)
        self._attended = attended
        positions = (attended.cumsum(dim=1) - 1).clamp(min=0)[:, -inputs.shape[1] :]
        logits: torch.Tensor = self._model(
            input_ids=inputs.to(self._model.device),
            attention_mask=attended,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1]

    def _keep(self, slots: Integers) -> None:
        """Keep the sequences in these slots, in this order, and drop the others."""
        if np.array_equal(slots, self._slots):
            return
        rows = torch.tensor([int(np.nonzero(self._slots == slot)[0][0]) for slot in slots])
        rows = rows.to(self._model.device)
        self._cache.batch_select_indices(rows)
        self._attended, self._slots = self._attended[rows], slots
