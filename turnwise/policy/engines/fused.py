"""Logits of many sequences at once for decoders like Llama's, Qwen2's and Qwen3's, in few and large products.

Such a decoder has RMS norms, rotary positions, grouped-query attention and a gated feed-forward. What makes it fast for
a small policy on a CPU, where the cost is that of calls as much as that of arithmetic:

* keys and values of all sequences stay in preallocated tensors, so only new tokens are computed, and a sequence goes
  on after its reply as if it had never stopped;
* the new tokens of all sequences lie side by side without padding: one product per projection. Q, K and V are one
  product, gate and up another. Attention alone pads, sequences with similar numbers of new tokens together;
* sequences that begin with the same tokens, as the replicas of a group do, are computed once and copied;
* in the last layer, only the last token of each sequence has a query, an output and a feed-forward.

The logits are those of the model's own forward pass, up to the rounding of products with other numbers of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from turnwise.policy.engines.forward import Integers, NewTokens, within
from turnwise.policy.engines.key_value_cache import KeyValueCache

FUSED = ("llama", "qwen2", "qwen3")
TOKENS_AT_ONCE = 2048
"""Most tokens whose activations are in memory at once, unless one sequence alone has more."""
MASK_ENTRIES = 2**22
"""Most entries of one attention mask, unless that of one sequence alone has more."""


def is_fusable(model: PreTrainedModel) -> bool:
    """Whether `FusedForward` computes this model."""
    config = model.config
    return bool(
        config.model_type in FUSED
        and config.hidden_act == "silu"
        and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
    )


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
            of_query, of_key = (weights[f"{attention}.{each}_norm.weight"] for each in "qk")
            self.head_norms = torch.cat([of_query.expand(heads, -1), of_key.expand(key_value_heads, -1)])
        self.feed_forward_norm = weights[f"{name}.post_attention_layernorm.weight"]
        self.gate_up = _Projection.of(weights, f"{feed_forward}.gate_proj", f"{feed_forward}.up_proj")
        self.down = _Projection.of(weights, f"{feed_forward}.down_proj")


@dataclass(frozen=True)
class _Attention:
    """Sequences whose queries attend together, padded to the same number of queries."""

    tokens: slice
    """Their tokens, among those of the call."""
    padded: torch.Tensor | None
    """The token of each padded query, [sequences x queries]; None where all have equally many."""
    unpadded: torch.Tensor | None
    """The padded query of each token."""
    slots: slice | torch.Tensor
    length: int
    """The longest sequence, the new tokens included."""
    mask: torch.Tensor | None
    """Added to the scores: [sequences, 1, queries x queries per key, length]. None: all sequences are that long."""


@dataclass(frozen=True)
class _Plan:
    """Where the tokens of a call belong."""

    places: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor
    attentions: list[_Attention]
    last: torch.Tensor | None
    """The last token of each sequence; None where each has one token only."""
    of_last: list[_Attention]
    """The attention of the last tokens alone."""


class FusedForward:
    """The decoder; see the module. Slots are those of a `KeyValueCache` that grows with their number."""

    keeps_past = True

    def __init__(
        self,
        model: PreTrainedModel,
        weights: Mapping[str, torch.Tensor],
        context_length: int,
        cache: KeyValueCache | None = None,
    ) -> None:
        """Take the architecture from `model`, and `weights` by their names in its state.

        The tensors are used as they are and must not change; only those that are joined are copied. `cache` is reused
        where it fits.
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
        self._cosine, self._sine = self._rotations(model, context_length)
        self.cache = KeyValueCache(
            layers=len(self._layers),
            heads=self._key_value_heads,
            dimension=self._dimension,
            dtype=self._embedding.dtype,
            device=self._embedding.device,
        )
        if cache is not None and cache.fits(self.cache):
            self.cache = cache

    def next_logits(self, new: NewTokens) -> torch.Tensor:
        """Logits after the last token of each sequence; see `Forward`."""
        self.cache.reserve(int(new.slots.max()) + 1, int((new.past + new.counts).max()))
        if len(new.tokens) == len(new) <= TOKENS_AT_ONCE:
            return self._logits(new)
        same_as = _same_beginnings(new)
        distinct = np.nonzero(same_as == np.arange(len(new)))[0]
        # Sequences with many new tokens first, so that those which attend together have similar numbers of them.
        distinct = distinct[np.argsort(-new.counts[distinct], kind="stable")]
        logits = torch.cat([self._logits(new.select(part)) for part in _parts(distinct, new.counts[distinct])])
        for row in np.unique(same_as[same_as != np.arange(len(new))]):
            copies = np.nonzero(same_as == row)[0][1:]
            self.cache.copy(int(new.slots[row]), new.slots[copies], int(new.counts[row]))
        place = np.empty(len(new), dtype=np.int64)
        place[distinct] = np.arange(len(distinct))
        return logits[torch.from_numpy(place[same_as]).to(logits.device)]

    def _logits(self, new: NewTokens) -> torch.Tensor:
        plan = self._plan(new)
        states = embedding(torch.from_numpy(new.tokens).to(self._embedding.device), self._embedding)
        for index, layer in enumerate(self._layers):
            is_last = plan.last is not None and index + 1 == len(self._layers)
            attended = self._attend(index, layer, states, plan, is_last)
            if is_last:
                states = states[plan.last]
            states = states + layer.output(attended)
            gate, up = layer.gate_up(rms_norm(states, states.shape[1:], layer.feed_forward_norm, self._epsilon)).chunk(
                2, 1
            )
            states = states + layer.down(silu(gate).mul_(up))
        return self._output(rms_norm(states, states.shape[1:], self._norm, self._epsilon))

    def _attend(self, index: int, layer: _Layer, states: torch.Tensor, plan: _Plan, is_last: bool) -> torch.Tensor:
        """The heads' outputs, [tokens, heads x dimension], after storing the tokens' keys and values.

        With `is_last`, those of the last token of each sequence only.
        """
        heads, both = self._heads, self._heads + self._key_value_heads
        normed = rms_norm(states, states.shape[1:], layer.attention_norm, self._epsilon)
        norms = layer.head_norms
        if is_last:
            query, key_value = layer.qkv.split(heads * self._dimension)
            found = key_value(normed).view(len(states), -1, self._dimension)
            keys = self._placed(found[:, : self._key_value_heads], None if norms is None else norms[heads:], plan)
            values = found[:, self._key_value_heads :]
            queries = query(normed[plan.last]).view(-1, heads, self._dimension)
            queries = self._placed(queries, None if norms is None else norms[:heads], plan, plan.last)
        else:
            found = layer.qkv(normed).view(len(states), -1, self._dimension)
            placed = self._placed(found[:, :both], norms, plan)
            queries, keys, values = placed[:, :heads], placed[:, heads:], found[:, both:]
        self.cache.write(index, plan.places, keys, values)
        attentions = plan.of_last if is_last else plan.attentions
        parts = [self._attention(index, queries[each.tokens], each) for each in attentions]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _placed(
        self, found: torch.Tensor, norms: torch.Tensor | None, plan: _Plan, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Queries or keys, [tokens, heads, dimension], normed and rotated by their positions.

        rotated = x cos + (-x_2, x_1) sin, x_1 and x_2 being the halves of x. The sine's first half is stored negated.
        """
        if norms is not None:
            found = rms_norm(found, found.shape[2:], None, self._epsilon).mul_(norms)
        cosine, sine = (plan.cosine, plan.sine) if chosen is None else (plan.cosine[chosen], plan.sine[chosen])
        return (found * cosine).addcmul_(found.roll(self._dimension // 2, -1), sine)

    def _attention(self, index: int, queries: torch.Tensor, which: _Attention) -> torch.Tensor:
        """Attention of [tokens, heads, dimension]: [tokens, heads x dimension].

        The queries that share a key-value head are rows of one product, so that keys and values are not repeated.
        """
        keys = self.cache.keys[index][which.slots, :, : which.length]
        values = self.cache.values[index][which.slots, :, : which.length]
        if which.padded is not None:
            queries = queries[which.padded]
        sequences, shared = len(keys), self._heads // self._key_value_heads
        shape = (sequences, -1, self._key_value_heads, shared, self._dimension)
        grouped = (
            queries.reshape(shape).permute(0, 2, 3, 1, 4).reshape(sequences, self._key_value_heads, -1, self._dimension)
        )
        found = scaled_dot_product_attention(grouped, keys, values, attn_mask=which.mask)
        found = found.view(sequences, self._key_value_heads, shared, -1, self._dimension).permute(0, 3, 1, 2, 4)
        found = found.reshape(-1, self._heads * self._dimension)
        return found if which.unpadded is None else found[which.unpadded]

    def _plan(self, new: NewTokens) -> _Plan:
        positions = np.repeat(new.past, new.counts) + within(new.counts)
        at = torch.from_numpy(positions).to(self._cosine.device)
        last, of_last = None, []
        attentions = self._attentions(new.slots, new.past, new.counts)
        if (new.counts > 1).any():
            last = torch.from_numpy(new.counts.cumsum() - 1).to(at.device)
            of_last = self._attentions(new.slots, new.past + new.counts - 1, np.ones_like(new.counts))
        return _Plan(
            places=self.cache.places(np.repeat(new.slots, new.counts), positions),
            cosine=self._cosine[at],
            sine=self._sine[at],
            attentions=attentions,
            last=last,
            of_last=of_last,
        )

    def _attentions(self, slots: Integers, past: Integers, counts: Integers) -> list[_Attention]:
        """How sequences with this many new tokens, the largest number first, attend."""
        shared = self._heads // self._key_value_heads
        groups: list[_Attention] = []
        begin = token = 0
        while begin < len(slots):
            queries = int(counts[begin])
            end = int(np.searchsorted(-counts, -queries // 2, side="right"))
            lengths = np.maximum.accumulate((past + counts)[begin:end])
            entries = np.arange(1, end - begin + 1) * lengths * queries * shared
            end = begin + max(1, int(np.searchsorted(entries, MASK_ENTRIES, side="right")))
            rows = slice(begin, end)
            groups.append(self._together(token, slots[rows], past[rows], counts[rows], shared))
            token, begin = groups[-1].tokens.stop, end
        return groups

    def _together(self, token: int, slots: Integers, past: Integers, counts: Integers, shared: int) -> _Attention:
        device, queries, length = self._cosine.device, int(counts[0]), int((past + counts).max())
        padded = unpadded = mask = None
        if counts[-1] != queries:
            begins = counts.cumsum() - counts
            # A padded query repeats the sequence's last token; nothing reads its output.
            padded = torch.from_numpy((begins[:, None] + np.minimum(np.arange(queries), counts[:, None] - 1)).ravel())
            unpadded = torch.from_numpy(np.repeat(np.arange(len(slots)) * queries, counts) + within(counts)).to(device)
            padded = padded.to(device)
        if queries > 1 or (past + 1 != length).any():
            seen = torch.from_numpy(past)[:, None] + torch.arange(queries).repeat(shared)
            hidden = torch.arange(length) > seen[:, None, :, None]
            mask = torch.zeros(hidden.shape, dtype=self._cosine.dtype).masked_fill_(hidden, -torch.inf).to(device)
        consecutive = slots[-1] - slots[0] == len(slots) - 1 and bool((np.diff(slots) == 1).all())
        return _Attention(
            tokens=slice(token, token + int(counts.sum())),
            padded=padded,
            unpadded=unpadded,
            slots=slice(int(slots[0]), int(slots[0]) + len(slots))
            if consecutive
            else torch.from_numpy(slots).to(device),
            length=length,
            mask=mask,
        )

    def _rotations(self, model: PreTrainedModel, context_length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of every position, both [positions, 1, dimension], the sine's first half negated."""
        positions = torch.arange(context_length, device=self._embedding.device)[None]
        cosine, sine = model.base_model.rotary_emb(self._embedding, positions)
        half = self._dimension // 2
        return cosine[0, :, None], torch.cat((-sine[0, :, None, :half], sine[0, :, None, half:]), dim=-1)


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
