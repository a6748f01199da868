"""The dimensions of a decoder before it is made or loaded: what its memory depends on.

Those of a policy from scratch follow from the section `policy`. Those of a published model are read from its
`config.json`, or a GGUF's header; its weights need not be there. They are arithmetic for the families of
`turnwise.policy.sizes`; of another architecture torch's meta device makes a model of shapes alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError, first_line
from turnwise.policy.gguf_sources import gguf_configuration, is_gguf
from turnwise.policy.pretrained import model_directory
from turnwise.policy.sizes import (
    DECODERS,
    Dimensions,
    configured_dimensions,
    known_dimensions,
    read_configuration,
)


def dimensions_of(policy: Policy) -> Dimensions | None:
    """The dimensions of the policy that this section describes.

    None for a model from a hub whose configuration is not on this machine, and that is not among the known ones of
    `turnwise.policy.sizes`: the hub is not contacted.
    """
    if policy.model == "scratch":
        return configured_dimensions(
            {
                "model_type": "qwen3",
                "vocab_size": policy.vocabulary,
                "hidden_size": policy.hidden,
                "num_hidden_layers": policy.layers,
                "num_attention_heads": policy.heads,
                "num_key_value_heads": policy.heads,
                "head_dim": policy.hidden // policy.heads,
                "intermediate_size": policy.feed_forward,
                "tie_word_embeddings": policy.tied_embeddings,
            }
        )
    if is_gguf(policy.model):
        return configured_dimensions(gguf_configuration(policy.model))
    folder = model_directory(policy.model) or _cached_folder(policy)
    return known_dimensions(policy.model) if folder is None else dimensions_in(folder)


def dimensions_in(folder: Path) -> Dimensions:
    """The dimensions of the model in a folder with a `config.json` in Hugging Face's layout.

    Raises ConfigurationError where it cannot be read, or is not a decoder's.
    """
    if (dimensions := configured_dimensions(read_configuration(folder) or {})) is not None:
        return dimensions
    from transformers import AutoConfig

    try:
        configuration = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        return _configured_dimensions(configuration.get_text_config(), configuration)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(
            f"policy.model: {folder / 'config.json'} must describe a decoder; {first_line(error)}", "TW-not-a-decoder"
        ) from error


def _cached_folder(policy: Policy) -> Path | None:
    """The folder of the hub's cache on this machine that holds the configuration of the model; None without one."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(policy.model, "config.json", revision=policy.revision)
    return Path(cached).parent if isinstance(cached, str) else None


def _configured_dimensions(text: Any, whole: Any) -> Dimensions:
    shapes = _shapes_on_meta(whole)
    heads = text.num_attention_heads
    return Dimensions(
        shapes=shapes,
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=heads,
        key_value_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dimension=getattr(text, "head_dim", None) or text.hidden_size // heads,
        feed_forward=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        head_norms=any("q_norm" in name for name in shapes),
        known=text.model_type in DECODERS,
    )


def _shapes_on_meta(configuration: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights of the model that transformers makes of a configuration, without making them."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
