"""The options of an update: what makes no sense is refused, with what must hold, what was found and what to do."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from turnwise.errors import ConfigurationError
from turnwise.policy.learner.divergence import ReferencePenalty
from turnwise.policy.learner.importance import ImportanceCorrection
from turnwise.policy.learner.losses import LOSSES
from turnwise.policy.learner.settings import UpdateSettings, require_full_distribution, require_update_options

PLAIN = {"learning_rate": 1e-3, "temperature": 1.0, "micro_batch_tokens": 100}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0; found 0.0"),
        ({"learning_rate": "3e-4"}, "found '3e-4'"),
        ({"learning_rate": float("nan")}, "found nan"),
        ({"temperature": 0.0}, "above 0; found 0.0: greedy replies have no policy gradient"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be a whole number of at least 1; found 0"),
        ({"epochs": 1.0}, "epochs must be a whole number"),
        ({"mini_batches": 0}, "mini_batches must be a whole number"),
        ({"maximum_gradient_norm": 0.0}, "maximum_gradient_norm must be a number above 0"),
        ({"betas": (0.9, 1.0)}, "betas must be a number of at least 0 and below 1; found 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be a number of at least 0"),
        ({"maximum_mismatch": 0.0}, "maximum_mismatch must be a number above 0"),
        ({"entropy_coefficient": -0.1}, "entropy_coefficient must be a number of at least 0; found -0.1"),
        ({"loss": "ppo"}, "loss must be one of clipped, gspo, cispo, reinforce; found 'ppo'"),
        ({"clip_low": 1.5}, "above 0 and of at most 1; found 1.5: at 1 there is no lower clip"),
        ({"clip_high": 0.0}, "clip_high must be a number above 0"),
        ({"dual_clip": 1.0}, "dual_clip must be a number above 1"),
        ({"loss": "gspo", "dual_clip": 3.0}, "'gspo' has clip_low and clip_high; found dual_clip: 3.0"),
        ({"loss": "cispo", "dual_clip": 3.0}, "'cispo' has clip_low and clip_high; found dual_clip: 3.0"),
        ({"loss": "reinforce", "clip_low": 0.2}, "'reinforce' has no clip; found clip_low: 0.2: leave clip_low out"),
        ({"aggregation": "mean"}, "one of token-mean, sequence-mean, constant, prompt-mean; found 'mean'"),
        ({"aggregation": "constant"}, "aggregation_constant must be a number above 0; found None"),
        ({"aggregation_constant": 80.0}, "left out with the aggregation 'token-mean'"),
        ({"reference": {"coefficient": 0.1, "estimator": "k1"}}, "zero in expectation"),
        ({"reference": {"coefficent": 0.1}}, "not an option of reference; did you mean 'coefficient'"),
        ({"reference": 0.1}, "reference must be null, or a section with coefficient, estimator, place; found 0.1"),
        ({"reference": {}}, "reference must set coefficient"),
        ({"correction": {"kind": "truncate", "low": 0.5}}, "correction.low must be left out"),
        ({"correction": "truncate"}, "correction must be null, or a section with kind, level, high, low"),
        ({"clip_lo": 0.2}, "'clip_lo' is not an option of an update; did you mean 'clip_low'"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        require_update_options(wrong)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_defaults_of_its_own(loss: str) -> None:
    require_update_options({**PLAIN, "loss": loss, "clip_low": None, "clip_high": None, "dual_clip": None})
    assert UpdateSettings(**PLAIN, loss=loss).loss_options == {}  # type: ignore[arg-type]


def test_plain_values_become_settings() -> None:
    settings = UpdateSettings.from_options(
        {
            **PLAIN,
            "loss": "gspo",
            "aggregation": "prompt-mean",
            "reference": {"coefficient": 0.001, "estimator": "k3"},
            "correction": {"kind": "mask", "level": "sequence", "high": 4.0},
        }
    )
    assert settings.reference == ReferencePenalty(0.001, "k3", "loss") == settings.penalty_in_loss
    assert settings.correction == ImportanceCorrection("mask", "sequence", 4.0)
    assert settings.correction.bounds == (0.5, 4.0)
    assert UpdateSettings.from_options({**PLAIN, "reference": None, "correction": None}) == UpdateSettings(**PLAIN)  # type: ignore[arg-type]


def test_a_penalty_in_the_reward_is_none_of_the_learners_business() -> None:
    settings = UpdateSettings(**PLAIN, reference=ReferencePenalty(0.1, "k1", "reward"))  # type: ignore[arg-type]
    assert settings.penalty_in_loss is None
    assert settings.advantages_alone
    assert not dataclasses.replace(settings, entropy_coefficient=0.1).advantages_alone
    assert not dataclasses.replace(settings, reference=ReferencePenalty(0.1, "k2", "loss")).advantages_alone


def test_a_cut_distribution_is_refused_with_a_policy_gradient() -> None:
    require_full_distribution()
    require_full_distribution(top_p=1.0, top_k=-1)
    for cut in ({"top_p": 0.95}, {"top_k": 50}):
        with pytest.raises(ConfigurationError, match="never draws some of them"):
            require_full_distribution(**cut)  # type: ignore[arg-type]


def test_the_configuration_does_not_wait_for_torch() -> None:
    code = "import sys, turnwise.policy.learner.settings; assert 'torch' not in sys.modules"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert finished.returncode == 0, finished.stderr
