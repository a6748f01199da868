"""Logits of many sequences at once for decoders that `turnwise.policy.decoder` knows, in few and large products.

What makes it fast for a small policy on a CPU, where the cost is that of calls as much as that of arithmetic:

* keys and values of all sequences stay in preallocated tensors, so only new tokens are computed, and a sequence goes
  on after its reply as if it had never stopped;
* the new tokens of all sequences lie side by side without padding: one product per projection. Q, K and V are one
  product, gate and up another. Attention alone pads, sequences with similar numbers of new tokens together; where
  keys and values are many, a single new token attends without (`turnwise.policy.engines.single_queries`);
* sequences that begin with the same tokens, as the replicas of a group do, are computed once and copied;
* in the last layer, only the last token of each sequence has a query, an output and a feed-forward.

The logits are those of the model's own forward pass, up to the rounding of products with other numbers of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from turnwise.policy.decoder import rotations
from turnwise.policy.engines.attention_plan import Attention, AttentionPlan, SingleQueries, plan_attention, visibility
from turnwise.policy.engines.cache_size import attends_singly, rounded_up
from turnwise.policy.engines.forward import Integers, NewTokens, within

TOKENS_AT_ONCE = 2048
"""Most tokens whose activations are in memory at once, unless one sequence alone has more."""
_HAS_LOOPS = os.uname().machine != "x86_64" or torch.backends.cpu.get_cpu_capability() != "DEFAULT"
"""Whether the processor can run `single_queries`: on x86 it needs AVX2."""


@dataclass(frozen=True)
class _Projection:
    weight: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, weights: Mapping[str, torch.Tensor], *names: str) -> _Projection:
        """The linear layer of this name, the model's own tensors, or several joined to one."""
        parts = [weights[f"{name}.weight"] for name in names]
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        if len(names) == 1:
            return cls(parts[0], biases[0] if biases else None)
        return cls(torch.cat(parts), torch.cat(biases) if biases else None)

    def split(self, rows: int) -> tuple[_Projection, _Projection]:
        """The first `rows` of its outputs, and the others."""
        first, rest = (None, None) if self.bias is None else (self.bias[:rows], self.bias[rows:])
        return _Projection(self.weight[:rows], first), _Projection(self.weight[rows:], rest)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return linear(states, self.weight, self.bias)


class _Layer:
    """The weights of one layer."""

    def __init__(self, weights: Mapping[str, torch.Tensor], name: str, heads: int, key_value_heads: int) -> None:
        attention, feed_forward = f"{name}.self_attn", f"{name}.mlp"
        self.attention_norm = weights[f"{name}.input_layernorm.weight"]
        self.qkv = _Projection.of(weights, *(f"{attention}.{each}_proj" for each in "qkv"))
        self.output = _Projection.of(weights, f"{attention}.o_proj")
        self.head_norms: torch.Tensor | None = None
        """Weights of the norms of queries and keys: [heads + key-value heads, dimension]; None where there are none."""
        if f"{attention}.q_norm.weight" in weights:
            query_norm, key_norm = (weights[f"{attention}.{each}_norm.weight"] for each in "qk")
            self.head_norms = torch.cat([query_norm.expand(heads, -1), key_norm.expand(key_value_heads, -1)])
        self.feed_forward_norm = weights[f"{name}.post_attention_layernorm.weight"]
        self.gate_up = _Projection.of(weights, f"{feed_forward}.gate_proj", f"{feed_forward}.up_proj")
        self.down = _Projection.of(weights, f"{feed_forward}.down_proj")


@dataclass(frozen=True)
class _Plan:
    """Where the tokens of a call belong."""

    places: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor
    attention: AttentionPlan
    last: torch.Tensor | None
    """The last token of each sequence; None where each has one token only."""
    last_attention: AttentionPlan
    """The attention of the last tokens alone."""


class FusedForward:
    """The decoder; see the module. Slots are those of a `KeyValueCache` that grows with their number."""

    keeps_past = True

    def __init__(
        self,
        model: PreTrainedModel,
        weights: Mapping[str, torch.Tensor],
        context_length: int,
        maximum_episodes: int,
        cache: KeyValueCache | None = None,
    ) -> None:
        """Take the architecture from `model`, and `weights` by their names in its state.

        The tensors are used as they are and must not change; only those that are joined are copied. Up to
        `maximum_episodes` sequences are computed at once. `cache` is reused where it fits.
        """
        config = model.config
        self._heads, self._key_value_heads = config.num_attention_heads, config.num_key_value_heads
        self._dimension = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        self._epsilon = config.rms_norm_eps
        self._embedding = weights["model.embed_tokens.weight"]
        self._layers = [
            _Layer(weights, f"model.layers.{index}", self._heads, self._key_value_heads)
            for index in range(config.num_hidden_layers)
        ]
        self._norm, self._output = weights["model.norm.weight"], _Projection.of(weights, "lm_head")
        positions = torch.arange(context_length, device=self._embedding.device)
        self._cosine, self._sine = rotations(model, positions)
        self._visible = visibility(context_length, self._cosine.dtype, self._cosine.device)
        self.cache = KeyValueCache(
            layers=len(self._layers),
            heads=self._key_value_heads,
            dimension=self._dimension,
            dtype=self._embedding.dtype,
            device=self._embedding.device,
        )
        if cache is not None and cache.fits(self.cache):
            self.cache = cache
        self._attend_singly: Callable[..., torch.Tensor] | None = None
        """The attention of `SingleQueries`; None: they are none of a plan's calls."""
        device, precise = self._embedding.device.type, self._embedding.dtype == torch.float32
        many = attends_singly(device, self.cache.bytes_per_token, context_length, maximum_episodes)
        if many and precise and _HAS_LOOPS:
            from turnwise.policy.engines.single_queries import attend_singly

            self._attend_singly = attend_singly

    def next_logits(self, new: NewTokens) -> torch.Tensor:
        """Logits after the last token of each sequence; see `Forward`."""
        self.cache.reserve(int(new.slots.max()) + 1, int((new.past + new.counts).max()))
        same_as = _same_beginnings(new)
        distinct = np.flatnonzero(same_as == np.arange(len(new)))
        if len(distinct) == len(new) and len(new.tokens) <= TOKENS_AT_ONCE:
            return self._logits(new)
        logits = torch.cat([self._logits(new.select(part)) for part in _parts(distinct, new.counts[distinct])])
        for row in np.unique(same_as[same_as != np.arange(len(new))]):
            copies = np.nonzero(same_as == row)[0][1:]
            self.cache.copy(int(new.slots[row]), new.slots[copies], int(new.counts[row]))
        place = np.empty(len(new), dtype=np.int64)
        place[distinct] = np.arange(len(distinct))
        return logits.index_select(0, torch.from_numpy(place[same_as]).to(logits.device))

    def _logits(self, new: NewTokens) -> torch.Tensor:
        plan = self._plan(new)
        states = embedding(torch.from_numpy(new.tokens).to(self._embedding.device), self._embedding)
        for index, layer in enumerate(self._layers):
            last = plan.last if index + 1 == len(self._layers) else None
            attended = self._attend(index, layer, states, plan, last)
            if last is not None:
                states = states.index_select(0, last)
            states = states + layer.output(attended)
            gate, up = layer.gate_up(rms_norm(states, states.shape[1:], layer.feed_forward_norm, self._epsilon)).chunk(
                2, 1
            )
            states = states + layer.down(silu(gate).mul_(up))
        return self._output(rms_norm(states, states.shape[1:], self._norm, self._epsilon))

    def _attend(
        self, index: int, layer: _Layer, states: torch.Tensor, plan: _Plan, last: torch.Tensor | None
    ) -> torch.Tensor:
        """The heads' outputs, [tokens, heads x dimension], after storing the tokens' keys and values.

        With `last`, the plan's, those of the last token of each sequence only.
        """
        heads, both = self._heads, self._heads + self._key_value_heads
        normed = rms_norm(states, states.shape[1:], layer.attention_norm, self._epsilon)
        norms = layer.head_norms
        if last is not None:
            query, key_value = layer.qkv.split(heads * self._dimension)
            projected = key_value(normed).view(len(states), -1, self._dimension)
            keys = self._rotate(projected[:, : self._key_value_heads], None if norms is None else norms[heads:], plan)
            values = projected[:, self._key_value_heads :]
            queries = query(normed.index_select(0, last)).view(-1, heads, self._dimension)
            queries = self._rotate(queries, None if norms is None else norms[:heads], plan, last)
        else:
            projected = layer.qkv(normed).view(len(states), -1, self._dimension)
            queries_and_keys = self._rotate(projected[:, :both], norms, plan)
            queries, keys, values = queries_and_keys[:, :heads], queries_and_keys[:, heads:], projected[:, both:]
        self.cache.write(index, plan.places, keys, values)
        attention = plan.attention if last is None else plan.last_attention
        parts = [self._attention(index, queries, call) for call in attention.calls]
        projected = parts[0] if len(parts) == 1 else torch.cat(parts)
        return projected if attention.unpadded is None else projected.index_select(0, attention.unpadded)

    def _rotate(
        self, projected: torch.Tensor, norms: torch.Tensor | None, plan: _Plan, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Queries or keys, [tokens, heads, dimension], normed and rotated by their positions: see `rotations`."""
        if norms is not None:
            projected = rms_norm(projected, projected.shape[2:], None, self._epsilon).mul_(norms)
        cosine, sine = plan.cosine, plan.sine
        if rows is not None:
            cosine, sine = cosine.index_select(0, rows), sine.index_select(0, rows)
        return (projected * cosine).addcmul_(projected.roll(self._dimension // 2, -1), sine)

    def _attention(self, index: int, queries: torch.Tensor, call: Attention | SingleQueries) -> torch.Tensor:
        """Attention of [tokens, heads, dimension]: [queries of the call, heads x dimension].

        The queries that share a key-value head are rows of one product, so that keys and values are not repeated.
        """
        if call.tokens is not None:
            queries = queries.index_select(0, call.tokens)
        if isinstance(call, SingleQueries):
            assert self._attend_singly is not None
            grouped = queries.view(len(queries), self._key_value_heads, -1, self._dimension)
            keys, values = self.cache.keys[index], self.cache.values[index]
            return self._attend_singly(grouped, keys, values, call.slots, call.lengths).view(len(queries), -1)
        keys, values = self.cache.read(index, call.slots, call.length)
        sequences, shared = len(keys), self._heads // self._key_value_heads
        shape = (sequences, -1, self._key_value_heads, shared, self._dimension)
        grouped = (
            queries.reshape(shape).permute(0, 2, 3, 1, 4).reshape(sequences, self._key_value_heads, -1, self._dimension)
        )
        attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=call.mask)
        attended = attended.view(sequences, self._key_value_heads, shared, -1, self._dimension).permute(0, 3, 1, 2, 4)
        return attended.reshape(-1, self._heads * self._dimension)

    def _plan(self, new: NewTokens) -> _Plan:
        positions = np.repeat(new.past, new.counts) + within(new.counts)
        at = torch.from_numpy(positions).to(self._cosine.device)
        attend = partial(
            plan_attention,
            new.slots,
            queries_per_key=self._heads // self._key_value_heads,
            visible=self._visible,
            singly=self._attend_singly is not None,
        )
        last, attention = None, attend(new.past, new.counts)
        last_attention = attention
        if (new.counts > 1).any():
            last = torch.from_numpy(new.counts.cumsum() - 1).to(at.device)
            last_attention = attend(new.past + new.counts - 1, np.ones_like(new.counts))
        return _Plan(
            places=self.cache.places(np.repeat(new.slots, new.counts), positions),
            cosine=self._cosine.index_select(0, at),
            sine=self._sine.index_select(0, at),
            attention=attention,
            last=last,
            last_attention=last_attention,
        )


def _same_beginnings(new: NewTokens) -> Integers:
    """For each sequence, the first one of these that it is equal to: itself, unless both begin with the same tokens."""
    same_as = np.arange(len(new))
    first_with: dict[bytes, int] = {}
    ends = new.counts.cumsum()
    for row in np.nonzero((new.past == 0) & (new.counts > 1))[0]:
        tokens = new.tokens[ends[row] - new.counts[row] : ends[row]].tobytes()
        same_as[row] = first_with.setdefault(tokens, int(row))
    return same_as


def _parts(rows: Integers, counts: Integers) -> list[Integers]:
    """The rows in parts of at most `TOKENS_AT_ONCE` tokens, or of one row."""
    parts: list[list[int]] = []
    tokens = 0
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        if not parts or tokens + count > TOKENS_AT_ONCE:
            parts.append([])
            tokens = 0
        parts[-1].append(row)
        tokens += count
    return [np.array(part) for part in parts]


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
        self.slots, self.length = _grow(self.slots, slots), _grow(self.length, length)
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


def _grow(now: int, needed: int) -> int:
    if needed <= now:
        return now
    return rounded_up(max(needed, now + now // 2))
