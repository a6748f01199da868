"""Sequences that lie side by side in one row, each of which attends to itself alone: no padding, no mask.

transformers' own modules compute the row as one long sequence, with an adapter, autocast, checkpointing and compiled
layers as ever. Attention alone must know where a sequence begins. It is a function that transformers takes by name (its
`AttentionInterface`), and is handed the row's `Boundaries`:

* where torch has the kernel, one call for all sequences: `torch.nn.attention.varlen`, FlashAttention-2 for sequences of
  unequal lengths (Dao 2023, arXiv 2307.08691), on cards from Ampere on, in half precision;
* else one call of torch's scaled dot product attention for each sequence.

Both take memory that grows with the number of tokens, and not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from turnwise.policy.decoder import is_known_decoder
from turnwise.policy.scoring import MicroBatch

SIDE_BY_SIDE = "side-by-side"
"""The name of the attention function. transformers makes no mask for a name that it does not know."""
WITH_KERNEL = (8, 0)
"""The compute capability from which on cards have the kernel: Ampere's."""
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Boundaries:
    """Where the sequences of a row begin and end."""

    lengths: tuple[int, ...]
    ends: torch.Tensor
    """0, and the end of each sequence, [sequences + 1] in int32."""

    @classmethod
    def of(cls, lengths: torch.Tensor) -> Boundaries:
        """Those of sequences of these lengths, [sequences]."""
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return cls(tuple(lengths.tolist()), ends)


def can_lie_side_by_side(model: PreTrainedModel, device_type: str, *, compiled: bool) -> bool:
    """Whether a model is computed so on this device: a known decoder, on a card.

    Compiled layers must have the kernel: one call for each sequence would be compiled anew for each micro-batch.
    """
    return device_type == "cuda" and is_known_decoder(model) and (not compiled or _has_kernel())


def lies_side_by_side(model: PreTrainedModel) -> bool:
    """Whether `side_by_side_reply_states` computes this model."""
    return bool(model.config._attn_implementation == SIDE_BY_SIDE)


def side_by_side_reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The `turnwise.policy.reply_states.reply_states` of a model that `lies_side_by_side`."""
    inputs, lengths = micro_batch.inputs, micro_batch.lengths
    columns = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
    is_token = columns < lengths[:, None]
    hidden: torch.Tensor = model.base_model(
        input_ids=inputs[is_token][None],
        position_ids=columns[is_token][None],
        use_cache=False,
        boundaries=Boundaries.of(lengths),
    ).last_hidden_state
    begins = lengths.cumsum(0) - lengths
    return hidden[0, begins[micro_batch.rows] + micro_batch.columns]


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    boundaries: Boundaries | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence of a row; without `boundaries` torch's, as transformers calls it.

    `query`: [1, heads, tokens, dimension]; `key`, `value`: [1, key and value heads, tokens, dimension]. Returns [1,
    tokens, heads, dimension], and no weights.
    """
    if boundaries is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    if query.is_cuda and torch.is_autocast_enabled("cuda"):  # for the kernel autocast has no rule
        query, key, value = (each.to(torch.get_autocast_dtype("cuda")) for each in (query, key, value))
    if takes_kernel(query):
        return in_one_call(query, key, value, boundaries, scaling), None
    parts = zip(*(each.split(boundaries.lengths, dim=2) for each in (query, key, value)), strict=True)
    attended = [
        sdpa_attention_forward(module, *part, None, scaling=scaling, is_causal=True, **options)[0] for part in parts
    ]
    return torch.cat(attended, dim=1), None


def takes_kernel(query: torch.Tensor) -> bool:
    """Whether torch's kernel for sequences of unequal lengths computes this."""
    return query.is_cuda and query.dtype in HALF and query.shape[-1] <= 256 and _has_kernel()


def in_one_call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, boundaries: Boundaries, scaling: float | None
) -> torch.Tensor:
    """What `attend` returns, by torch's kernel."""
    queries, keys, values = (each[0].transpose(0, 1) for each in (query, key, value))
    most = max(boundaries.lengths)
    attended = varlen_attn(
        queries,
        keys,
        values,
        boundaries.ends,
        boundaries.ends,
        most,
        most,
        scale=scaling,
        window_size=(-1, 0),  # any number before, none after: causal
        enable_gqa=True,
    )
    assert isinstance(attended, torch.Tensor), "nothing else was asked for"
    return attended[None]


def _has_kernel() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= WITH_KERNEL


AttentionInterface.register(SIDE_BY_SIDE, attend)
