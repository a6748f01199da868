"""The trunk's hidden states that predict reply tokens: by transformers' own forward pass, or by a faster one.

Decoders that `turnwise.policy.decoder` knows are computed faster, with the same result up to rounding. On a card it is
without padding, by transformers' own modules: `turnwise.policy.side_by_side`. On the CPU our own pass computes them:

* the tokens of a micro-batch lie side by side, and what sequences begin with alike is computed once
  (`turnwise.policy.packing`): only attention computes padding;
* queries, keys and values are one product;
* in bfloat16 attention is computed by plain products, as `turnwise.policy.attention` says;
* after the attention of the last layer only states that predict a reply token are computed;
* norms and rotations have backward passes of their own. Element-wise work is bound by memory, and autograd's backward
  pass of a norm goes over the states three times as often.

Feed-forward layers and projections are transformers' own modules.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turnwise.policy.attention import attend
from turnwise.policy.decoder import is_known_decoder, rotations
from turnwise.policy.model import trunk_forward
from turnwise.policy.packing import Packing
from turnwise.policy.scoring import MicroBatch
from turnwise.policy.side_by_side import lies_side_by_side, side_by_side_reply_states
from turnwise.policy.slices import is_sliced

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of each token's position: see `rotations`."""


def reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The trunk's last hidden states at the positions that predict reply tokens: [replies, hidden]."""
    if lies_side_by_side(model):
        return side_by_side_reply_states(model, micro_batch)
    return (packed_reply_states if is_packable(model) else padded_reply_states)(model, micro_batch)


def leaves_padding_out(model: PreTrainedModel) -> bool:
    """Whether `reply_states` computes the tokens of a micro-batch alone, and none of its padding."""
    return lies_side_by_side(model) or is_packable(model)


def padded_reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The `reply_states` by transformers' own forward pass, for any model."""
    hidden: torch.Tensor = model.base_model(input_ids=micro_batch.inputs, use_cache=False).last_hidden_state
    return hidden[micro_batch.rows, micro_batch.columns]


def is_packable(model: PreTrainedModel) -> bool:
    """Whether `packed_reply_states` computes this model.

    It must be a known decoder on the CPU, without an adapter and without compiled layers, around whose forward pass
    `turnwise.policy.sharding` gathers no weights.
    """
    around = trunk_forward(model)
    return (
        is_known_decoder(model)
        and model.device.type == "cpu"
        and not (around is not None and around.compiled)
        and not is_sliced(model)
        and all(parameter.requires_grad for parameter in model.parameters())
    )


def packed_reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The `reply_states` of a model that `is_packable`."""
    around = trunk_forward(model)
    with nullcontext() if around is None else around.autocast():
        return _packed_reply_states(model, micro_batch)


def _packed_reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    trunk = model.base_model
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else model.dtype
    packing = Packing.of(micro_batch, dtype)
    rotation = rotations(model, packing.positions)
    scored, inverse = packing.scored.unique(return_inverse=True)
    states = trunk.embed_tokens(packing.inputs)
    for layer in trunk.layers:
        inputs = (layer, states, packing, rotation, scored if layer is trunk.layers[-1] else None)
        if trunk.gradient_checkpointing and layer.training:
            states = checkpoint(_layer, *inputs, use_reentrant=False, preserve_rng_state=False)
        else:
            states = _layer(*inputs)
    return _norm(trunk.norm, states).index_select(0, inverse)


def _layer(
    layer: Any, states: torch.Tensor, packing: Packing, rotation: Rotation, scored: torch.Tensor | None
) -> torch.Tensor:
    """One layer, [tokens, hidden]; with `scored` its states at these tokens only."""
    attended = _attention(layer.self_attn, _norm(layer.input_layernorm, states), packing, rotation)
    if scored is not None:
        attended, states = attended.index_select(0, scored), states.index_select(0, scored)
    states = states + layer.self_attn.o_proj(attended)
    between: torch.Tensor = states + layer.mlp(_norm(layer.post_attention_layernorm, states))
    return between


def _attention(attention: Any, states: torch.Tensor, packing: Packing, rotation: Rotation) -> torch.Tensor:
    """The heads' outputs, [tokens, heads x dimension]."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight = torch.cat([each.weight for each in projections])
    bias = None if attention.q_proj.bias is None else torch.cat([each.bias for each in projections])
    heads, key_value_heads = (each.out_features // attention.head_dim for each in projections[:2])
    projected = linear(states, weight, bias).view(len(states), -1, attention.head_dim)
    placed, values = projected.split((heads + key_value_heads, key_value_heads), dim=1)
    if hasattr(attention, "q_norm"):
        query_norm, key_norm = attention.q_norm.weight, attention.k_norm.weight
        weight = torch.cat([query_norm.expand(heads, -1), key_norm.expand(key_value_heads, -1)])
        placed = _RmsNorm.apply(placed, weight, attention.q_norm.variance_epsilon)
    queries, keys = _Rotation.apply(placed, *rotation).split((heads, key_value_heads), dim=1)
    outputs = []
    for block in packing.blocks:
        block_queries, block_keys, block_values = (
            each.index_select(0, tokens).unflatten(0, (block.sequences, -1)).transpose(1, 2)
            for each, tokens in ((queries, block.queries), (keys, block.keys), (values, block.keys))
        )
        block_outputs = attend(block_queries, block_keys, block_values, block, attention.scaling)
        outputs.append(block_outputs.transpose(1, 2).reshape(-1, heads * attention.head_dim))
    return torch.cat(outputs).index_select(0, packing.attended)


def _norm(module: Any, states: torch.Tensor) -> torch.Tensor:
    normed: torch.Tensor = _RmsNorm.apply(states, module.weight, module.variance_epsilon)
    return normed


class _RmsNorm(torch.autograd.Function):
    """y = w x / sqrt(mean(x^2) + epsilon) over the last dimension of x, [tokens, ...]; w has x's shape but for tokens.

    With s = 1 / sqrt(mean(x^2) + epsilon), n = s x and the gradient g of y:

        of x:  s (w g - n mean(w g n))        of w:  sum over tokens of g n
    """

    @staticmethod
    def forward(context: Any, states: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        with torch.autocast(states.device.type, enabled=False):  # a mean of squares is not rounded to bfloat16
            exact = states.to(weight.dtype)
            squares = torch.linalg.vecdot(exact, exact).unsqueeze(-1)
            scale = squares.div_(states.shape[-1]).add_(epsilon).rsqrt_()
            context.save_for_backward(states, weight, scale)
            return (states * scale).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        states, weight, scale = context.saved_tensors
        normed, weighted = states * scale, gradient * weight
        mean = torch.linalg.vecdot(weighted, normed).unsqueeze(-1).div_(states.shape[-1])
        state_gradients = weighted.addcmul_(normed, mean, value=-1.0).mul_(scale)
        return state_gradients, normed.mul_(gradient).sum(0), None


class _Rotation(torch.autograd.Function):
    """R of `turnwise.policy.decoder`, of states [tokens, heads, dimension]. Its transpose rotates back."""

    @staticmethod
    def forward(context: Any, states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(cosine, sine)
        return (states * cosine).addcmul_(states.roll(states.shape[-1] // 2, -1), sine)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cosine, sine = context.saved_tensors
        halves_swapped = gradient.roll(gradient.shape[-1] // 2, -1)
        return (gradient * cosine).addcmul_(halves_swapped, sine, value=-1.0), None, None
