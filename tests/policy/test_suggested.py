"""Settings that follow from a model's size, where a configuration says `suggested`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands.plan import show_plan
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.suggested import SETTINGS, rate_of_reinforcement

ROOT = Path(__file__).parents[2]
MODEL = {"policy.model": "smollm2-135m"}


def test_every_suggestion_is_a_value_that_its_key_takes() -> None:
    experiment = load(ROOT / "params.yaml", [], {**MODEL, **dict.fromkeys(SETTINGS, "suggested")})
    assert experiment.optimization.learning_rate == 1e-5
    warm = experiment.warm_start
    assert (warm.learning_rate, warm.final_learning_rate, warm.maximum_steps, warm.batch) == (1e-4, 2e-5, 16, 8)
    assert experiment.data.demonstrations == 64
    assert experiment.compute.precision in ("float32", "bfloat16")
    assert set(experiment.suggested) == set(SETTINGS)


@pytest.mark.parametrize(
    ("device", "flags", "expected"),
    [
        ("cpu", ["avx2", "avx512_bf16"], "bfloat16"),
        ("cpu", ["amx_tile"], "bfloat16"),
        ("cpu", ["avx2", "avx512f"], "float32"),
        ("cpu", [], "float32"),
        ("cuda", ["avx2"], "bfloat16"),
    ],
)
def test_the_precision_is_one_that_the_device_has_instructions_for_and_bounds_follow(
    monkeypatch: pytest.MonkeyPatch, device: str, flags: list[str], expected: str
) -> None:
    monkeypatch.setattr("turnwise.store.run_environment.platform", lambda: {"processor": {"flags": flags}})
    wanted = dict.fromkeys(["compute.precision", "optimization.maximum_mismatch"], "suggested")
    experiment = load(ROOT / "params.yaml", [], {**MODEL, "compute.device": device, **wanted})
    assert experiment.compute.precision == expected
    assert experiment.optimization.maximum_mismatch == {"float32": 0.01, "bfloat16": 0.1}[expected]


def test_a_larger_model_has_smaller_rates_and_an_adapter_ten_times_larger_ones() -> None:
    # 1e-5 (135 / 494)^0.7 = 4.03e-6 for Qwen2.5-0.5B, and 1e-5 (135 / 7616)^0.7 = 5.9e-7 for the model of 7.6 billion.
    assert [rate_of_reinforcement(each) for each in (494_000_000, 7_616_000_000)] == [4e-6, 6e-7]
    adapter = {"optimization.learning_rate": "suggested", "optimization.adapter": {"rank": 8, "alpha": 16}}
    assert load(ROOT / "params.yaml", [], {**MODEL, **adapter}).optimization.learning_rate == 1e-4


def test_the_plan_says_what_was_suggested() -> None:
    wanted = dict.fromkeys(["optimization.learning_rate", "compute.precision"], "suggested")
    experiment = load(ROOT / "params.yaml", [], {**MODEL, **wanted})
    shown = io.StringIO()
    show_plan(experiment, Console(file=shown, width=200))
    expected = f"compute.precision {experiment.compute.precision}, optimization.learning_rate 1e-05, from the size of"
    assert f"{expected} smollm2-135m and this machine" in " ".join(shown.getvalue().split())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimization.learning_rate": "suggested"}, r"\b50\b.*base-1m.*1\.2.*TW-nothing-suggested"),
        ({**MODEL, "rollout.prompts": "suggested"}, r"rollout\.prompts.*TW-nothing-suggested"),
    ],
)
def test_what_nothing_is_suggested_for_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(ROOT / "params.yaml", [], settings)
