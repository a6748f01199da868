"""A policy from scratch: Qwen3's architecture at about a million parameters.

It is small enough that two CPU cores train it in minutes, and vLLM and transformers both know the architecture, so that
all other code treats it like a model of 8 billion parameters.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from turnwise.config.model_settings import require_heads


def create_policy(
    folder: Path,
    *,
    vocabulary_size: int,
    context_length: int,
    end_token: int,
    pad_token: int,
    seed: int,
    hidden: int = 128,
    layers: int = 4,
    heads: int = 4,
    key_value_heads: int = 2,
    feed_forward: int = 384,
    initial_deviation: float = 0.02,
    tied: bool = True,
) -> int:
    """Write a policy with random weights into `folder` (float32, Hugging Face's layout); return its parameter count.

    `context_length` is in tokens. `initial_deviation` is the standard deviation of the initial weights; `tied` shares
    the embedding with the output layer. The same arguments give the same bytes. Raises ConfigurationError for sizes
    that do not fit each other.
    """
    require_heads(hidden, heads, key_value_heads)
    config = Qwen3Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=hidden // heads,
        max_position_embeddings=context_length,
        initializer_range=initial_deviation,
        tie_word_embeddings=tied,
        eos_token_id=end_token,
        pad_token_id=pad_token,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.to(torch.float32)
    model.save_pretrained(folder)
    return int(sum(parameter.numel() for parameter in model.parameters()))
