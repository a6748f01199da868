"""Keys and values of many sequences: one preallocated tensor of each per layer, a slot per sequence."""

from __future__ import annotations

import torch

from turnwise.policy.engines.cache_size import rounded_up
from turnwise.policy.engines.forward import Integers


class KeyValueCache:
    """Slots of `length` tokens each, in every layer. It grows as needed, at least by half, and never shrinks."""

    def __init__(self, *, layers: int, heads: int, dimension: int, dtype: torch.dtype, device: torch.device) -> None:
        self._heads, self._dimension = heads, dimension
        self.slots, self.length = 0, 0
        empty = torch.zeros((0, heads, 0, dimension), dtype=dtype, device=device)
        self.keys = [empty] * layers
        """Of each layer: [slots, heads, length, dimension]."""
        self.values = [empty] * layers

    @property
    def bytes_per_token(self) -> int:
        """The size of one token's keys and values in all layers."""
        return 2 * len(self.keys) * self._heads * self._dimension * self.keys[0].element_size()

    def fits(self, other: KeyValueCache) -> bool:
        """Whether the two have equal layers, so that either can serve for the other."""
        ours, theirs = self.keys[0], other.keys[0]
        same_layers = (len(self.keys), *ours.shape[1::2]) == (len(other.keys), *theirs.shape[1::2])
        return same_layers and (ours.dtype, ours.device) == (theirs.dtype, theirs.device)

    def reserve(self, slots: int, length: int) -> None:
        """Make room for this many slots with this many tokens each. New room is filled with zeros.

        Zeros, since what is masked is multiplied by 0: memory that was never written might hold NaN.
        """
        if slots <= self.slots and length <= self.length:
            return
        before = self.slots, self.length
        self.slots, self.length = _grown(self.slots, slots), _grown(self.length, length)
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = old.new_zeros((self.slots, self._heads, self.length, self._dimension))
                tensors[layer][: before[0], :, : before[1]] = old

    def places(self, slots: Integers, positions: Integers) -> torch.Tensor:
        """Where `write` puts one token for each entry of `slots` and `positions`: [tokens x heads]."""
        first = torch.from_numpy(slots * self._heads)[:, None] + torch.arange(self._heads)
        places = first * self.length + torch.from_numpy(positions)[:, None]
        return places.flatten().to(self.keys[0].device)

    def write(self, layer: int, places: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store keys and values, both [tokens, heads, dimension], at `places`."""
        for stored, new in ((self.keys[layer], keys), (self.values[layer], values)):
            stored.view(-1, self._dimension).index_copy_(0, places, new.reshape(-1, self._dimension))

    def read(self, layer: int, slots: slice | torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the first `length` tokens of these slots, both [slots, heads, length, dimension]."""
        keys, values = self.keys[layer][:, :, :length], self.values[layer][:, :, :length]
        if isinstance(slots, slice):
            return keys[slots], values[slots]
        # Many times faster on a CPU than indexing with a tensor.
        return keys.index_select(0, slots), values.index_select(0, slots)

    def copy(self, source: int, to: Integers, length: int) -> None:
        """Copy the first `length` tokens of one slot into others."""
        slots = torch.from_numpy(to).to(self.keys[0].device)
        for tensors in (self.keys, self.values):
            for stored in tensors:
                # A clone: torch refuses to write to a tensor from the whole of one of its slots.
                stored[slots, :, :length] = stored[source, :, :length].clone()


def _grown(now: int, needed: int) -> int:
    if needed <= now:
        return now
    return rounded_up(max(needed, now + now // 2))
