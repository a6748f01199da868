"""The shapes that are computed from a configuration are those of the model that transformers makes of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from turnwise.policy.sizes import FAMILIES, configured_dimensions

SIZES = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4}
OPTIONS: list[dict[str, Any]] = [
    {"num_key_value_heads": 2, **tied, **biased, **wide}
    for tied, biased, wide in product(
        ({}, {"tie_word_embeddings": True}),
        ({}, {"attention_bias": True}, {"mlp_bias": True, "attention_bias": False}),
        ({}, {"head_dim": 24}),
    )
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [*OPTIONS, {"num_attention_heads": 32}], ids=str)
def test_names_and_shapes_are_those_of_transformers(family: str, options: dict[str, Any]) -> None:
    values = {"model_type": family, **SIZES, **options}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    computed = configured_dimensions(values)
    assert computed is not None
    assert computed.shapes == {name: tuple(each.shape) for name, each in model.named_parameters()}
    assert type(model).__name__ == FAMILIES[family].architecture


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"model_type": "gpt2", **SIZES},
        {"model_type": "llama"},
        {"model_type": "llama", **SIZES, "hidden_size": "64"},
        {"model_type": "qwen3", **SIZES, "head_dim": None},
    ],
    ids=str,
)
def test_what_is_not_known_is_left_to_transformers(values: dict[str, Any]) -> None:
    assert configured_dimensions(values) is None
