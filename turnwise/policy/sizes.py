"""The size of a policy before it is made or loaded: dimensions and weights by arithmetic, without torch.

The dimensions of a decoder follow from its `config.json`. Covered are Llama (SmolLM2 too), Mistral, Qwen2 and Qwen3
with dense layers. With h the hidden width, f that of the feed-forward, d a head's dimension, n heads and k heads of
keys and values, a layer has

    input_layernorm [h], q_proj [n d, h], k_proj and v_proj [k d, h], o_proj [h, n d],
    post_attention_layernorm [h], gate_proj and up_proj [f, h], down_proj [h, f]

Qwen2 has biases of q, k and v; Qwen3 has norms [d] of queries and keys. Names and shapes are those that transformers
gives to the model's parameters: `tests/policy/test_configured_shapes.py` compares them.

Public facts of published models are in `known_models.json`, the one place for them, so that a plan with disk and memory
is printed before any of their files is here: the sizes that a model's `config.json` names, under the names of the
repositories that have them, with the number of parameters that is published of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from turnwise.config.model_settings import Adapter, Moments

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each weight, by name."""
DECODERS = ("llama", "qwen2", "qwen3")
"""The `model_type`s of the decoders that `turnwise.policy.decoder` computes by a forward pass of its own."""
OUTPUT_LAYER = "lm_head.weight"
FACTS = Path(__file__).with_name("known_models.json")


@dataclass(frozen=True)
class Family:
    """What a `config.json` leaves to its family: defaults of absent keys, and parameters that others do not have."""

    architecture: str
    """The name of transformers' class of the language model."""
    key_value_heads: int | None = None
    """Where the configuration names none; None: as many as there are heads."""
    head_dimension: int | None = None
    """Where the configuration names none; None: the width divided by the heads."""
    biased: tuple[str, ...] = ()
    """Linear layers that always have a bias."""
    bias_switches: tuple[str, ...] = ()
    """Those of the keys `attention_bias` and `mlp_bias` that the family reads."""
    head_norms: bool = False


FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM", bias_switches=("attention_bias", "mlp_bias")),
    "mistral": Family("MistralForCausalLM", key_value_heads=8),
    "qwen2": Family("Qwen2ForCausalLM", key_value_heads=32, biased=("q_proj", "k_proj", "v_proj")),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        key_value_heads=32,
        head_dimension=128,
        bias_switches=("attention_bias",),
        head_norms=True,
    ),
}
"""By `model_type`."""


@dataclass(frozen=True)
class Dimensions:
    """The dimensions of a decoder."""

    shapes: Shapes
    """Of every weight; an output layer that is tied to the embedding is not among them."""
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_dimension: int
    feed_forward: int
    head_norms: bool
    """Whether queries and keys are normalised."""
    known: bool
    """Whether it is a decoder of `turnwise.policy.decoder`, which the learner computes by its own forward pass."""

    @property
    def queries(self) -> int:
        """The width of a token's queries in all heads, and of what attention returns."""
        return self.heads * self.head_dimension

    @property
    def keys(self) -> int:
        """The width of a token's keys in all heads, and of its values."""
        return self.key_value_heads * self.head_dimension


def read_configuration(folder: Path) -> dict[str, Any] | None:
    """The `config.json` of a folder; None where it is missing or no JSON object."""
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def configured_dimensions(values: Mapping[str, Any]) -> Dimensions | None:
    """The dimensions of the decoder that a `config.json` with these values describes.

    None for another family than those of `FAMILIES`, or values that transformers has to judge.
    """
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None:
        return None
    sizes = [
        values.get(name)
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    ]
    if not all(type(size) is int and size > 0 for size in sizes):
        return None
    vocabulary, hidden, layers, heads, feed_forward = (int(size) for size in sizes if size is not None)
    key_value_heads = _size(values, "num_key_value_heads", family.key_value_heads, heads)
    head_dimension = _size(values, "head_dim", family.head_dimension, hidden // heads)
    if key_value_heads is None or head_dimension is None:
        return None
    dimensions = Dimensions(
        shapes={},
        vocabulary=vocabulary,
        hidden=hidden,
        layers=layers,
        heads=heads,
        key_value_heads=key_value_heads,
        head_dimension=head_dimension,
        feed_forward=feed_forward,
        head_norms=family.head_norms,
        known=values["model_type"] in DECODERS,
    )
    return replace(dimensions, shapes=_shapes(dimensions, family, values))


def _size(values: Mapping[str, Any], key: str, default: int | None, derived: int) -> int | None:
    """The size under a key, its family's default, or the one derived from other sizes; None for no positive integer.

    A null stands for the derived size in the families that have no default of their own.
    """
    size = values.get(key, default)
    if size is None and default is None:
        size = derived
    return size if type(size) is int and size > 0 else None


def _shapes(sizes: Dimensions, family: Family, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner, queries, keys = sizes.hidden, sizes.feed_forward, sizes.queries, sizes.keys
    attention = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
    }
    feed_forward = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    switched = {name for name in family.bias_switches if values.get(name)}
    biased = {
        *family.biased,
        *(attention if "attention_bias" in switched else ()),
        *(feed_forward if "mlp_bias" in switched else ()),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocabulary, hidden)}
    for layer in range(sizes.layers):
        place = f"model.layers.{layer}"
        for module, linear in (("self_attn", attention), ("mlp", feed_forward)):
            for name, shape in linear.items():
                shapes[f"{place}.{module}.{name}.weight"] = shape
                if name in biased:
                    shapes[f"{place}.{module}.{name}.bias"] = shape[:1]
        if family.head_norms:
            shapes[f"{place}.self_attn.q_norm.weight"] = (sizes.head_dimension,)
            shapes[f"{place}.self_attn.k_norm.weight"] = (sizes.head_dimension,)
        shapes[f"{place}.input_layernorm.weight"] = (hidden,)
        shapes[f"{place}.post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not values.get("tie_word_embeddings", False):
        shapes[OUTPUT_LAYER] = (sizes.vocabulary, hidden)
    return shapes


def count(shapes: Shapes) -> int:
    """The number of parameters in all weights."""
    return sum(map(prod, shapes.values()))


def covered(shapes: Shapes, adapter: Adapter) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of the linear layers that the adapter is added to."""
    return {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and name.removesuffix(".weight").rpartition(".")[2] in adapter.target_modules
    }


def moment_bytes(weights: int, moments: Moments) -> int:
    """The bytes of AdamW's two moments of so many trained weights: see `turnwise.policy.optimizer`."""
    scales = 2 * 4 * weights // 256 if moments == "8-bit" else 0
    return 2 * {"float32": 4, "bfloat16": 2, "8-bit": 1}[moments] * weights + scales


def trained(shapes: Shapes, adapter: Adapter | None) -> int:
    """The number of trained parameters: all, or with an adapter only the adapter's."""
    if adapter is None:
        return count(shapes)
    return sum(adapter.rank * sum(shape) for shape in covered(shapes, adapter).values())


@cache
def facts() -> dict[str, Any]:
    """The content of `known_models.json`."""
    content: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return content


def known_configuration(model: str) -> dict[str, Any]:
    """What is known of the `config.json` of a published model, by its name on the hub; empty where nothing is."""
    configurations = [entry["config"] for entry in facts()["configurations"] if model in entry["models"]]
    return dict(configurations[0]) if configurations else {}


def known_dimensions(model: str) -> Dimensions | None:
    """The dimensions of a published model by its name on the hub; None for one that is not among the known ones."""
    return configured_dimensions(known_configuration(model))
