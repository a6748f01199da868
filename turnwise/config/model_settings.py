"""Settings of a model: precision, memory options, adapter. `turnwise.policy.model` applies them; no torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.config.bounds import require_choice, require_count
from turnwise.errors import ConfigurationError

Precision = Literal["float32", "bfloat16"]

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of attention and feed-forward: all there are in policies made from scratch and in most others."""
HEAD_DIMENSIONS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""The dimensions of an attention head that vLLM's CPU kernels accept."""


def smallest_vocabulary(tags: Sequence[str]) -> int:
    """The smallest vocabulary of a tokenizer trained from scratch: 256 bytes, 3 control tokens, and a format's tags."""
    return 256 + 3 + len(tags)


def require_heads(hidden: int, heads: int, key_value_heads: int) -> None:
    """Raise ConfigurationError for a hidden size and numbers of heads that do not fit together."""
    if hidden % heads or hidden // heads % 2:
        raise ConfigurationError(
            f"hidden must be an even multiple of heads, since positions turn pairs of numbers; found hidden {hidden} "
            f"and heads {heads}"
        )
    if heads % key_value_heads:
        raise ConfigurationError(
            f"heads must be a multiple of key_value_heads; found heads {heads}, key_value_heads {key_value_heads}"
        )


def require_kernels(hidden: int, heads: int, engine: str) -> None:
    """Raise ConfigurationError where the engine's kernels refuse this head dimension; transformers' take any."""
    if engine == "vllm" and hidden // heads not in HEAD_DIMENSIONS:
        allowed = ", ".join(map(str, HEAD_DIMENSIONS))
        raise ConfigurationError(
            f"hidden / heads must be one of {allowed} for vLLM's CPU attention; found {hidden} / {heads} = "
            f"{hidden // heads}: change hidden or heads, or set compute.engine to transformers"
        )


@dataclass(frozen=True)
class AdapterSettings:
    """A low-rank adapter (LoRA): each adapted layer adds (alpha / rank) B A to its weight."""

    rank: int
    alpha: int
    target_modules: tuple[str, ...] = LINEAR_LAYERS
    """The linear layers that get an adapter, by the last part of their name."""
    seed: int = 0
    """Seed of the initial A."""

    def __post_init__(self) -> None:
        require_count("an adapter's rank", self.rank)
        require_count("an adapter's alpha", self.alpha)
        if not self.target_modules:
            raise ConfigurationError("an adapter's target_modules must name a linear layer; found none")


@dataclass(frozen=True)
class ModelSettings:
    """How a model is held in memory and computed. Default: the plain model in float32, with all parameters trained."""

    precision: Precision = "float32"
    """The data type of the trunk's computation. `bfloat16` is refused on a device without instructions for it."""
    gradient_checkpointing: bool = False
    """Recompute each layer's activations in the backward pass instead of storing them."""
    compiled: bool = False
    """Compile the layers (torch.compile): takes a minute at the first batch; results differ in their rounding."""
    logit_chunk_tokens: int = 4096
    """Most reply tokens whose logits are in memory at once; see `turnwise.policy.scoring`."""
    adapter: AdapterSettings | None = None
    """With an adapter only the adapter is trained; None trains every parameter."""

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, get_args(Precision))
        require_count("logit_chunk_tokens", self.logit_chunk_tokens)


PLAIN = ModelSettings()
