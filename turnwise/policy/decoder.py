"""Decoders like Llama's, Qwen2's and Qwen3's: those that ours compute faster than transformers' modules do.

With x the state of a token at its position p, a layer is

    h = x + O attention(R_p(norm_q(Q n)), R_p(norm_k(K n)), V n),   n = norm_1(x)
    y = h + D (silu(G m) * U m),                                    m = norm_2(h)

where a norm divides by the root of the mean square (Llama and Qwen2 have none of queries and keys), R_p rotates by the
position, and a key and value serve several queries. `turnwise.policy.engines.fused` computes it to sample,
`turnwise.policy.reply_states` to train. Every other model is computed by transformers.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from turnwise.policy.sizes import DECODERS


def is_known_decoder(model: PreTrainedModel) -> bool:
    """Whether the model is computed as this module's head says."""
    config = model.config
    return bool(
        config.model_type in DECODERS
        and config.hidden_act == "silu"
        and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
    )


def rotations(model: PreTrainedModel, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of R at these positions, [n]: both [n, 1, dimension], the sine's first half negated.

    R(x) = x cos + (x_2, x_1) sin,   x_1 and x_2 being the halves of x
    """
    embedding = model.get_input_embeddings().weight
    cosine, sine = model.base_model.rotary_emb(embedding, positions[None])
    half = cosine.shape[-1] // 2
    return cosine[0, :, None], torch.cat((-sine[0, :, None, :half], sine[0, :, None, half:]), dim=-1)
