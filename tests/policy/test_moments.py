"""Moments in bfloat16, in 8 bits and on the host: what is remembered, and that it is AdamW all the same."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import two_turn_sequences
from refusals import refusal
from safetensors.torch import load_file

from tests.own_view import let_see
from turnwise.config.model_settings import PLAIN, Compute, ModelSettings
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.policy import model
from turnwise.policy.learner.learner import Learner
from turnwise.policy.optimizer import PART, HeldAdamW, NamedAdamW, rounded_stochastically

needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao, of the extra low-memory, is not installed"
)
EIGHT_BIT = pytest.param("8-bit", marks=needs_torchao)


def minimised(options: ModelSettings, steps: int = 120, folder: Path | None = None) -> dict[str, torch.Tensor]:
    """Weights after AdamW's steps on a quadratic with noise; in `folder` the optimizer is saved and restored halfway.

    One parameter has 5,120 numbers, which are whole blocks, and one 7.
    """
    noise = torch.Generator().manual_seed(4)
    weights = {"wide": torch.nn.Parameter(torch.zeros(20, 256)), "few": torch.nn.Parameter(torch.ones(7))}
    optimizer = NamedAdamW(weights, options)
    for step in range(steps):
        if folder is not None and step == steps // 2:
            optimizer.save(folder / "moments.safetensors")
            optimizer = NamedAdamW(weights, options)
            optimizer.restore(folder / "moments.safetensors")
            assert optimizer.steps == steps // 2
        for parameter in weights.values():
            loss = (parameter - 0.5).square().sum() / 2
            loss.backward()
            assert parameter.grad is not None
            parameter.grad += 0.1 * torch.randn(parameter.shape, generator=noise)
        rate = 0.05 * (1 - step / steps)
        optimizer.step(learning_rate=rate, maximum_gradient_norm=1e9, betas=(0.9, 0.99), weight_decay=0.0)
    return {name: parameter.detach() for name, parameter in weights.items()}


@given(st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32).filter(lambda value: abs(value) > 2.0**-100))
@settings(max_examples=50, deadline=None)
def test_stochastic_rounding_gives_a_neighbour_and_the_number_in_the_mean(value: float) -> None:
    many = 20_000
    rounded = rounded_stochastically(torch.full((many,), value), torch.Generator().manual_seed(1)).double()
    found = rounded.unique()
    spacing = abs(value) * 2**-7
    assert len(found) <= 2 and float((found - value).abs().max()) <= spacing
    # The mean of draws between two neighbours deviates by at most half of their distance over the root of the number.
    assert abs(float(rounded.mean()) - value) <= 5 * spacing / 2 / many**0.5


def test_a_number_of_bfloat16_stays_what_it_is() -> None:
    exact = torch.tensor([0.0, -1.0, 1.5, 2.0**-100, -(2.0**100), 0.0078125]).to(torch.bfloat16)
    for seed in range(20):
        assert torch.equal(rounded_stochastically(exact.float(), torch.Generator().manual_seed(seed)), exact)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", EIGHT_BIT])
def test_a_quadratic_is_minimised(kind: Any) -> None:
    for name, weights in minimised(ModelSettings(moments=kind)).items():
        assert (weights - 0.5).abs().max() < 0.1, name


@pytest.mark.parametrize("part", [PART, 512])
def test_moments_in_float32_on_the_host_give_the_weights_of_torchs_adamw_to_the_bit(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{HeldAdamW.__module__}.PART", part)
    expected, found = minimised(PLAIN), minimised(ModelSettings(offload_moments=True))
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())


@pytest.mark.parametrize("kind", ["bfloat16", EIGHT_BIT])
@pytest.mark.parametrize("offload", [False, True])
def test_where_moments_are_held_changes_no_bit_and_neither_does_a_resume(
    kind: Any, offload: bool, tmp_path: Path
) -> None:
    expected = minimised(ModelSettings(moments=kind), steps=10)
    found = minimised(ModelSettings(moments=kind, offload_moments=offload), steps=10, folder=tmp_path)
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())


@needs_torchao
def test_in_8_bits_the_steps_are_those_of_torchaos_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao.optim import AdamW8bit

    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # theirs compiles its step: slow
    weights = {side: torch.nn.Parameter(torch.zeros(20, 256)) for side in ("ours", "theirs")}
    ours = HeldAdamW({"weights": weights["ours"]}, "8-bit", offload=False)
    ours.param_groups[0].update(lr=0.01, betas=(0.9, 0.999), weight_decay=0.1)
    theirs = AdamW8bit([weights["theirs"]], lr=0.01, betas=(0.9, 0.999), weight_decay=0.1)
    noise = torch.Generator().manual_seed(2)
    for _ in range(10):
        gradient = torch.randn(20, 256, generator=noise)
        for side, optimizer in (("ours", ours), ("theirs", theirs)):
            weights[side].grad = gradient.clone()
            optimizer.step()
    assert weights["ours"].detach().abs().max() > 0.01
    assert torch.allclose(weights["ours"], weights["theirs"], rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "bytes_per_weight"),
    [("float32", 8), ("bfloat16", 4), pytest.param("8-bit", 2 + 8 / 256, marks=needs_torchao)],
)
def test_a_saved_state_has_the_bytes_that_the_plan_counts(kind: Any, bytes_per_weight: float, tmp_path: Path) -> None:
    minimised(ModelSettings(moments=kind), steps=2, folder=tmp_path)
    saved = load_file(tmp_path / "moments.safetensors")
    assert sum(tensor.nbytes for name, tensor in saved.items() if "wide" in name) == 20 * 256 * bytes_per_weight + 4


def test_a_learner_with_rounded_moments_learns_and_goes_on_to_the_bit(
    make_policy: Callable[..., Path], tmp_path: Path
) -> None:
    model = ModelSettings(moments="bfloat16")
    learner, precise = (Learner(make_policy(0), threads=1, model=each) for each in (model, PLAIN))

    def step(trained: Learner) -> float:
        return trained.supervised_step(two_turn_sequences(), learning_rate=1e-3, micro_batch_tokens=40)["loss"]

    losses, expected = [step(learner) for _ in range(6)], [step(precise) for _ in range(6)]
    assert losses[-1] < losses[0] and losses == pytest.approx(expected, rel=1e-2)
    learner.save(tmp_path)
    restored = Learner.restore(tmp_path, threads=1, model=model)
    assert [step(restored) for _ in range(2)] == [step(learner) for _ in range(2)]
    with pytest.raises(ArtifactError, match=r"compute\.moments.*TW-optimizer-state"):
        Learner.restore(tmp_path, threads=1)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, make_policy: Callable[..., Path]) -> None:
    values = {"device": "cpu", "engine": "embedded", "engine_threads": 1, "learner_threads": 1}
    assert "offload_moments: false on the device cpu" in refusal(Compute, {**values, "offload_moments": True})
    assert "moments must be one of float32, bfloat16, 8-bit" in refusal(Compute, {**values, "moments": "float16"})
    let_see(monkeypatch, model, "importlib", util=SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(ConfigurationError, match="TW-missing-package"):
        Learner(make_policy(0), threads=1, model=ModelSettings(moments="8-bit"))


def test_options_at_their_defaults_are_in_no_cache_key() -> None:
    values = {"device": "cuda", "engine": "vllm", "engine_threads": 1, "learner_threads": 1}
    assert not {"moments", "offload_moments"} & Compute(**values).model_dump(mode="json").keys()
    chosen = Compute(**values, moments="8-bit", offload_moments=True).model_dump(mode="json")
    assert (chosen["moments"], chosen["offload_moments"]) == ("8-bit", True)
