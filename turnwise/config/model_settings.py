"""How a model is held and computed; see `turnwise.policy.model`, which does so. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.config.bounds import require_choice, require_count
from turnwise.errors import ConfigurationError

Precision = Literal["float32", "bfloat16"]

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""All of a policy that is made here, and of most others: of its attention, and of its feed-forward part."""
HEAD_DIMENSIONS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM's attention kernels for the CPU accept."""


def smallest_vocabulary(tags: Sequence[str]) -> int:
    """The fewest tokens of a tokenizer that is trained here: 256 bytes, 3 control tokens, and the tags of a format."""
    return 256 + 3 + len(tags)


def require_heads(hidden: int, heads: int, key_value_heads: int) -> None:
    """Raise ConfigurationError for a width and numbers of heads that make no model."""
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
    """Raise ConfigurationError where the engine's kernels refuse heads of this size; transformers' take any."""
    if engine == "vllm" and hidden // heads not in HEAD_DIMENSIONS:
        allowed = ", ".join(map(str, HEAD_DIMENSIONS))
        raise ConfigurationError(
            f"hidden / heads must be one of {allowed} for vLLM's CPU attention; found {hidden} / {heads} = "
            f"{hidden // heads}: change hidden or heads, or set compute.engine to transformers"
        )


@dataclass(frozen=True)
class AdapterSettings:
    """A low-rank adapter (LoRA)."""

    rank: int
    alpha: int
    """The adapter's product is multiplied by alpha / rank."""
    target_modules: tuple[str, ...] = LINEAR_LAYERS
    """The linear layers that have one, by the last part of their name."""
    seed: int = 0
    """Of the initial A."""

    def __post_init__(self) -> None:
        require_count("an adapter's rank", self.rank)
        require_count("an adapter's alpha", self.alpha)
        if not self.target_modules:
            raise ConfigurationError("an adapter's target_modules must name a linear layer; found none")


@dataclass(frozen=True)
class ModelSettings:
    """The default is the plain model in float32, all of it trained."""

    precision: Precision = "float32"
    """What the trunk computes in. `bfloat16` is refused on a device without instructions for it."""
    gradient_checkpointing: bool = False
    """Compute every layer again in the backward pass instead of keeping what is inside it."""
    compiled: bool = False
    """Compile the layers: a minute at the first batch, faster after it; results differ in their rounding."""
    logit_chunk_tokens: int = 4096
    """Reply tokens whose logits exist at once; see `turnwise.policy.scoring`."""
    adapter: AdapterSettings | None = None
    """None trains every parameter; an adapter trains nothing but itself."""

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, get_args(Precision))
        require_count("logit_chunk_tokens", self.logit_chunk_tokens)


PLAIN = ModelSettings()
