"""The plan of checkpointing on a card: numbers worked by hand, and a trace of the allocations of a published shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.allocations import SETTINGS, traced
from tests.policy.published_shapes import QWEN
from turnwise.config.model_settings import Adapter, ModelSettings
from turnwise.policy.dimensions import Dimensions
from turnwise.policy.memory_plan import ModelMemory
from turnwise.training_runs.memory import activations

SMALL = Dimensions(
    shapes={"embed_tokens.weight": (10, 4), "0.q_proj.weight": (4, 4), "0.down_proj.weight": (4, 8)},
    vocabulary=10,
    hidden=4,
    layers=2,
    heads=2,
    key_value_heads=1,
    head_dimension=2,
    feed_forward=8,
    head_norms=False,
    known=True,
)
CHECKPOINTED = ModelSettings(precision="bfloat16", gradient_checkpointing=True)


def on_a_card(settings: ModelSettings, dimensions: Dimensions = SMALL) -> ModelMemory:
    return ModelMemory(dimensions, settings, "cuda")


def test_the_largest_of_three_moments_stands_beside_the_inputs_of_the_layers() -> None:
    # A token in a layer: 26 x 4 + 4 x 4 + 4 x 2 + 8 x 8 = 192 bytes. A layer's rounded weights: 2 x (2 x 4 x (4 + 2) +
    # 3 x 4 x 8) = 288. Inputs of two layers: 2 x 4 x 4 a token.
    plan = on_a_card(CHECKPOINTED)
    assert activations(plan, 10, 0) == 320 + 2 * 1920 + 288, "a layer again, with its gradients"
    assert activations(plan, 1, 0) == 32 + 2 * 288 + 192, "the forward pass, in which rounded weights stay"
    assert activations(plan, 10, 10_000) == 320, "the logits are more than either"
    # The gradient of a tied output layer, 4 x 10 x 4 bytes, waits while a layer is computed again.
    assert activations(plan, 10, 1_000) == 320 + 2 * 1920 + 288 + 160 - 1_000
    untied = replace(SMALL, shapes={**SMALL.shapes, "lm_head.weight": (10, 4)})
    assert activations(on_a_card(CHECKPOINTED, untied), 10, 1_000) == 320 + 2 * 1920 + 288 - 1_000


def test_inputs_are_rounded_where_all_weights_are() -> None:
    adapted = CHECKPOINTED.changed(adapter=Adapter(rank=1, alpha=1))
    assert activations(on_a_card(adapted), 10, 10_000) == 160


@pytest.mark.parametrize("settings", [CHECKPOINTED, ModelSettings(gradient_checkpointing=True)])
def test_elsewhere_the_plan_is_that_of_all_at_once(settings: ModelSettings) -> None:
    on_host = ModelMemory(SMALL, settings, "cpu")
    assert activations(on_host, 10, 1_000) == on_host.activations(10)
    kept = on_a_card(settings.changed(gradient_checkpointing=False))
    assert activations(kept, 10, 1_000) == kept.activations(10)


def test_the_plan_of_an_update_is_that_of_a_trace_and_at_most_a_tenth_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QWEN["0.5B"], "num_hidden_layers", 3)  # each is traced alike, in half a second
    name = "adapter, checkpointing"
    assert SETTINGS[name].gradient_checkpointing
    found = traced("0.5B", name)
    assert found.state == pytest.approx(found.state_planned, rel=1e-3)
    assert 1.0 <= found.passes_planned / found.passes <= 1.1
    assert sum(number for _, number in found.largest) == found.passes + found.state
