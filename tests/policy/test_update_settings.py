"""The options of an update: what makes no sense is refused, with what must hold, what was found and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from turnwise.config.optimization import Distillation, ImportanceCorrection, ReferencePenalty, TokenSelection
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.learner.losses import LOSSES
from turnwise.policy.learner.settings import (
    UpdateSettings,
    require_distillation,
    require_full_distribution,
    require_loss,
)
from turnwise.policy.learner.token_selection import require_token_selection

ROOT = Path(__file__).parents[2]
PLAIN: dict[str, Any] = {"learning_rate": 1e-3, "temperature": 1.0, "micro_batch_tokens": 100}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be at least 1e-12; found 0.0"),
        ({"learning_rate": "3e-4"}, "learning_rate must be a number; found '3e-4'"),
        ({"learning_rate": float("nan")}, "found nan"),
        ({"temperature": 0.0}, "temperature must be at least 0.01: greedy replies have no policy gradient; found 0.0"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be at least 1; found 0"),
        ({"epochs": 1.0}, "epochs must be a whole number"),
        ({"mini_batches": 0}, "mini_batches must be at least 1; found 0"),
        ({"maximum_gradient_norm": 0.0}, "maximum_gradient_norm must be above 0"),
        ({"betas": (0.9, 1.0)}, "betas.1 must be below 1; found 1.0"),
        ({"learning_rate_warmup": 0.5}, "learning_rate_warmup must be a whole number"),
        ({"learning_rate_schedule": "square"}, "must be one of constant, linear, cosine; found 'square'"),
        ({"final_learning_rate_share": 0.1}, "must be left out with the schedule 'constant'"),
        ({"learning_rate_schedule": "linear"}, "run_steps must be given for a learning rate that falls"),
        ({"run_steps": 10}, "run_steps must be given for a learning rate that falls, and for no other; found 10"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"maximum_mismatch": 0.0}, "maximum_mismatch must be above 0"),
        (
            {"entropy_coefficient": -0.1},
            "entropy_coefficient must be at least 0: a bonus below 0 is a race to certainty; found -0.1",
        ),
        ({"clip_low": 1.5}, "clip_low must be at most 1: at 1 there is no lower clip; found 1.5"),
        ({"clip_low": 0.0}, "clip_low must be above 0"),
        ({"clip_high": 0.0}, "clip_high must be above 0"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1: at 1 no negative advantage would count; found 1.0"),
        (
            {"aggregation": "mean"},
            "aggregation must be one of token-mean, sequence-mean, constant, prompt-mean, token-sum, sequence-sum;",
        ),
        ({"aggregation": "constant"}, "aggregation_constant must be a number above 0; found None"),
        ({"aggregation_constant": 80.0}, "left out with the aggregation 'token-mean'"),
        ({"reference": {"coefficient": 0.1, "estimator": "k1"}}, "zero in expectation"),
        (
            {"reference": {"coefficent": 0.1}},
            "reference.coefficent: 'coefficent' is not a known name; did you mean 'coefficient'",
        ),
        (
            {"reference": 0.1},
            "reference must be a section with coefficient, estimator, place, reweighted, clamp, adaptive; found 0.1",
        ),
        ({"reference": {}}, "reference.coefficient must be set; found nothing"),
        ({"correction": {"kind": "none"}}, "correction.sequence_mask must be set with kind none"),
        (
            {"reference": {"coefficient": 0.1, "reweighted": True}},
            "reference.reweighted must be false but for the estimator k3 in",
        ),
        (
            {"reference": {"coefficient": 0.1, "estimator": "k3+", "place": "reward"}},
            "place must be loss for the estimator k3+",
        ),
        ({"off_policy_bound": 0.0}, "off_policy_bound must be above 0"),
        ({"distillation": {"weight": 0.0}}, "for no distillation set it to null"),
        ({"token_selection": {"options": {}}}, "token_selection.rule must be set"),
        (
            {"correction": "truncate"},
            "correction must be a section with kind, level, high, low, over_mean, sequence_mask; found 'truncate'",
        ),
        ({"clip_lo": 0.2}, "'clip_lo' is not a known name; did you mean 'clip_low'"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], reason: str) -> None:
    assert reason in refusal(UpdateSettings, {**PLAIN, **wrong})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"loss": "ppo"}, r"'ppo'.*TW-unknown-loss"),
        ({"loss": "gspo", "dual_clip": 3.0}, r"'gspo'.*clip_low.*clip_high.*dual_clip.*3\.0.*TW-unread-option"),
        ({"loss": "cispo", "dual_clip": 3.0}, r"'cispo'.*clip_low.*clip_high.*dual_clip.*3\.0.*TW-unread-option"),
        ({"loss": "reinforce", "clip_low": 0.2}, r"'reinforce'.*clip_low.*0\.2.*TW-unread-option"),
        ({"loss": "sapo", "clip_low": 0.2}, r"'sapo'.*TW-unread-option"),
        (
            {"loss": "sapo", "loss_options": {"temperature": 1.0}},
            r"loss_options.*'sapo'.*temperature_po.*TW-unknown-option",
        ),
        ({"loss": "sapo", "loss_options": {"temperature_positive": 0.0}}, r"temperature_positive.*TW-option-range"),
        ({"loss": "clipped", "loss_options": {"clip_low": 0.1}}, r"optimization\.clip_low.*TW-unread-option"),
        ({"loss": "dppo-tv", "loss_options": {"delta_low": 1.5}}, r"delta_low.*TW-option-range"),
        ({"loss": "dro", "loss_options": {"beta": -1.0}}, r"beta.*TW-option-range"),
        ({"loss": "reinforce", "loss_options": {"beta": 1.0}}, r"'reinforce'.*TW-unknown-option"),
    ],
)
def test_a_clip_that_the_loss_does_not_have_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        require_loss(UpdateSettings(**PLAIN, **wrong))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_defaults_of_its_own(loss: str) -> None:
    settings = UpdateSettings(**PLAIN, loss=loss, clip_low=None, clip_high=None, dual_clip=None)
    require_loss(settings)
    assert settings.loss_arguments == {}


def test_plain_values_become_settings() -> None:
    settings = UpdateSettings.model_validate(
        {
            **PLAIN,
            "loss": "gspo",
            "aggregation": "prompt-mean",
            "reference": {"coefficient": 0.001, "estimator": "k3"},
            "correction": {"kind": "mask", "level": "sequence", "high": 4.0},
        }
    )
    penalty = ReferencePenalty(coefficient=0.001, estimator="k3", place="loss")
    assert settings.reference == penalty == settings.penalty_in_loss
    assert settings.correction == ImportanceCorrection(kind="mask", level="sequence", high=4.0)
    assert settings.correction.bounds == (0.5, 4.0)
    assert UpdateSettings(**PLAIN, reference=None, correction=None) == UpdateSettings(**PLAIN)


def test_a_penalty_in_the_reward_is_none_of_the_learners_business() -> None:
    in_reward = ReferencePenalty(coefficient=0.1, estimator="k1", place="reward")
    in_loss = ReferencePenalty(coefficient=0.1, estimator="k2", place="loss")
    settings = UpdateSettings(**PLAIN, reference=in_reward)
    assert settings.penalty_in_loss is None
    assert settings.advantages_alone
    assert not settings.changed(entropy_coefficient=0.1).advantages_alone
    assert not settings.changed(reference=in_loss).advantages_alone


def test_a_cut_distribution_is_refused_with_a_policy_gradient() -> None:
    require_full_distribution()
    require_full_distribution(top_p=1.0, top_k=-1)
    for cut in ({"top_p": 0.95}, {"top_k": 50}):
        with pytest.raises(ConfigurationError, match="TW-cut-distribution"):
            require_full_distribution(**cut)  # type: ignore[arg-type]


def test_the_configuration_does_not_wait_for_torch() -> None:
    code = "import sys, turnwise.policy.learner.settings; assert 'torch' not in sys.modules"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"rule": "clip_cov"}, r"rule.*clip-cov.*kl-cov.*top-entropy.*'clip_cov'.*TW-unknown-rule"),
        ({"rule": "clip-cov", "options": {"ratio": 0.1}}, r"options.*'clip-cov'.*TW-unknown-option"),
        ({"rule": "kl-cov", "options": {"share": 0.0}}, r"share.*TW-option-range"),
        ({"rule": "top-entropy", "options": {"share": 1.0}}, r"share.*TW-option-range"),
        ({"rule": "clip-cov", "options": {"low": 5.0}}, "TW-reversed-bounds"),
    ],
)
def test_a_selection_of_tokens_that_makes_no_sense_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        require_token_selection(TokenSelection(**wrong))


def test_a_key_that_came_later_is_in_no_digest_until_it_is_set() -> None:
    assert (
        not {"token_selection", "off_policy_bound", "distillation"}
        & UpdateSettings(**PLAIN).model_dump(mode="json").keys()
    )
    chosen = UpdateSettings(**PLAIN, off_policy_bound=0.1, token_selection={"rule": "kl-cov"})
    assert chosen.model_dump()["token_selection"] == {"rule": "kl-cov", "options": {}}
    assert UpdateSettings(**chosen.model_dump()) == chosen


def test_a_rule_that_adds_to_the_loss_gives_tokens_without_advantage_a_gradient() -> None:
    assert UpdateSettings(**PLAIN, token_selection={"rule": "clip-cov"}).advantages_alone
    assert not UpdateSettings(**PLAIN, token_selection={"rule": "kl-cov"}).advantages_alone
    assert not UpdateSettings(**PLAIN, distillation={}).advantages_alone


@pytest.mark.parametrize(
    ("rewrites_context", "processes", "message"),
    [
        (True, 1, "TW-context-not-whole"),
        (False, 2, r"\b2\b.*credit\.estimator.*TW-not-in-parallel"),
    ],
)
def test_distillation_is_of_one_sequence_an_episode_by_one_process(
    rewrites_context: bool, processes: int, message: str
) -> None:
    plain = load(ROOT / "params.yaml").optimization
    require_distillation(plain, rewrites_context=rewrites_context, learner_processes=processes)
    chosen = plain.model_copy(update={"distillation": Distillation()})
    require_distillation(chosen, rewrites_context=False, learner_processes=1)
    with pytest.raises(ConfigurationError, match=message):
        require_distillation(chosen, rewrites_context=rewrites_context, learner_processes=processes)
