"""Our credit rules and losses beside verl's own functions: values and gradients, on ragged padded batches.

verl 0.9.1 asks for Ray and for older versions than ours of what it is installed with, so it cannot be a development
dependency. Its `core_algos` is a module of plain functions, and is imported from the wheel as it lies, with stand-ins
for the packages around it. pip downloads the wheel (1.7 MB) once for this file; where it cannot be had, these tests say
so.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from padded_samples import Padded, by_sequence, gradient, padded

from turnwise.config.optimization import Aggregation, ReferencePenalty
from turnwise.credit import CreditBatch, estimate, value_targets
from turnwise.policy.adaptive_penalty import NEXT_COEFFICIENT, coefficient_metrics, penalty_after
from turnwise.policy.divergence import DIVERGENCES
from turnwise.policy.learner.learner import objective
from turnwise.policy.learner.token_selection import ReplyTokenInputs, clip_cov, covariance_terms, kl_cov
from turnwise.policy.learner.update import UpdateSettings, token_weights

WHEEL = "verl==0.9.1 --hash=sha256:db6e6f2a8d9d5808d9ec32d357a42319fdc6967df688ff9d9810050f49bfdd14"
pytestmark = pytest.mark.filterwarnings("ignore:a trajectory that has no other")
PLAIN: dict[str, Any] = {"learning_rate": 1e-3, "temperature": 1.0, "micro_batch_tokens": 100}
STAND_INS = {
    "omegaconf": ("DictConfig",),
    "tensordict": ("TensorDict",),
    "verl.utils.device": ("get_device_name", "get_torch_device"),
    "verl.trainer.config": ("AlgoConfig",),
    "verl.workers.config": ("ActorConfig",),
}
examples = settings(max_examples=30, deadline=None)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of verl's wheel."""
    folder = tmp_path_factory.mktemp("verl")
    (folder / "verl.txt").write_text(WHEEL)
    options = ["-q", "--no-deps", "--require-hashes", "--disable-pip-version-check", "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(folder / "verl.txt")]
    downloaded = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if downloaded.returncode:
        pytest.skip(f"verl's wheel cannot be had here: {downloaded.stderr.strip()[-300:]}")
    (path,) = folder.glob("verl-*.whl")
    return str(path)


@pytest.fixture(scope="module")
def verl(wheel: str) -> Iterator[Any]:
    """verl's `core_algos`, imported from the wheel; what was put into `sys.modules` for it is taken out again."""
    before = dict(sys.modules)
    try:
        for package in ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo", "verl.workers"):
            module = types.ModuleType(package)
            module.__path__ = [os.path.join(wheel, *package.split("."))]
            sys.modules[package] = module
        for name, attributes in STAND_INS.items():
            if name not in before:
                module = types.ModuleType(name)
                for attribute in attributes:
                    setattr(module, attribute, type(attribute, (), {}))
                sys.modules[name] = module
        groupwise = importlib.import_module("verl.utils.groupwise")
        sys.modules["verl.utils"].as_torch_index = groupwise.as_torch_index  # type: ignore[attr-defined]
        sys.modules["verl.utils"].group_mean_std = groupwise.group_mean_std  # type: ignore[attr-defined]
        yield importlib.import_module("verl.trainer.ppo.core_algos")
    finally:
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]


def token_rewards(batch: Padded) -> torch.Tensor:
    """Each sequence's reward at its last reply token, as verl takes it."""
    rewards = torch.zeros(batch.mask.shape, dtype=torch.float64)
    places = batch.mask.long().cumsum(dim=1).argmax(dim=1)
    rewards[torch.arange(len(rewards)), places] = torch.tensor(batch.rewards, dtype=torch.float64)
    return rewards


def credit_batch(batch: Padded) -> CreditBatch:
    """The sequences as trajectories of one turn."""
    return CreditBatch(
        group=batch.groups,
        turn_rewards=[[0.0]] * len(batch.groups),
        outcome=batch.rewards,
        reply_lengths=[[length] for length in batch.lengths],
        named_rewards=[[reward] for reward in batch.rewards],
        reward_weights=[[1.0]] * len(batch.groups),
    )


def alone(batch: Padded) -> list[bool]:
    return [batch.groups.count(group) == 1 for group in batch.groups]


RULES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "grpo": ("compute_grpo_outcome_advantage", "grpo", {"epsilon": 1e-6}),
    "grpo without deviation": ("compute_grpo_outcome_advantage", "grpo", {"deviation": "none"}),
    "rloo": ("compute_rloo_outcome_advantage", "rloo", {}),
    "opo": ("compute_opo_outcome_advantage", "opo", {}),
    "gpg": ("compute_gpg_outcome_advantage", "gpg", {"counted": "rewarded"}),
}


@pytest.mark.parametrize("case", RULES)
@examples
@given(batch=padded())
def test_rules_of_groups_are_verls_but_for_groups_of_one(verl: Any, case: str, batch: Padded) -> None:
    """The expected difference: verl gives a group of one its own reward (gpg: times N / n), ours 0."""
    function, name, options = RULES[case]
    further = {"norm_adv_by_std_in_grpo": False} if "deviation" in options else {}
    found, _ = getattr(verl, function)(
        token_level_rewards=token_rewards(batch), response_mask=batch.mask, index=np.array(batch.groups), **further
    )
    ours = by_sequence(estimate(name, credit_batch(batch), **options).tolist())
    factor = len(batch.rewards) / max(1, np.count_nonzero(batch.rewards)) if name == "gpg" else 1.0
    for row, mask, own, single, reward in zip(found, batch.mask, ours, alone(batch), batch.rewards, strict=True):
        expected = factor * reward / (1.0 + 1e-6 if case == "grpo" else 1.0) if single else own
        assert own == 0.0 or not single
        assert row[mask].tolist() == pytest.approx([expected] * int(mask.sum()), abs=1e-5)


@pytest.mark.parametrize(
    "function",
    ["compute_optimal_token_baseline_advantage", "compute_multi_turn_optimal_token_baseline_advantage"],
)
@examples
@given(batch=padded())
def test_the_optimal_token_baseline_is_verls(verl: Any, function: str, batch: Padded) -> None:
    """The expected differences: a group of one gets 0 here; without `tir` verl's steps are columns of the padded row,
    so that it is asked with replies that follow one another.
    """
    lengths = torch.tensor(batch.lengths)
    mask = torch.arange(batch.mask.shape[1]) < lengths.unsqueeze(1)
    log_mu, squares = batch.log_mu, batch.log_mu.exp() ** 2 + 0.1 * batch.entropy
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[torch.arange(len(mask)), lengths - 1] = torch.tensor(batch.rewards, dtype=torch.float64)
    found, _ = getattr(verl, function)(
        token_level_rewards=rewards,
        response_mask=mask.to(torch.float64),
        index=np.array(batch.groups),
        old_log_probs=log_mu,
        sum_pi_squared=squares,
    )
    norms = 1.0 - 2.0 * log_mu.exp() + squares
    rows = [row[kept].tolist() for row, kept in zip(norms, mask, strict=True)]
    ours = estimate("optimal-token-baseline", replace(credit_batch(batch), score_norms=rows), alone="return")
    for row, kept, own, single in zip(found, mask, ours, alone(batch), strict=True):
        expected = [0.0] * len(own) if single else row[kept].tolist()
        assert own.tolist() == pytest.approx(expected, abs=1e-5)


@examples
@given(batch=padded())
def test_remax_is_verls(verl: Any, batch: Padded) -> None:
    baselines = batch.advantages
    found, _ = verl.compute_remax_outcome_advantage(
        token_level_rewards=token_rewards(batch),
        reward_baselines=baselines,
        response_mask=batch.mask.to(torch.float64),
    )
    greedy = [[0.0, value] for value in baselines.tolist()]
    ours = estimate("remax", replace(credit_batch(batch), greedy_rewards=greedy))
    for row, mask, own in zip(found, batch.mask, ours, strict=True):
        assert row[mask].tolist() == pytest.approx([own[0]] * int(mask.sum()))


@examples
@given(batch=padded())
def test_pass_at_k_is_verls(verl: Any, batch: Padded) -> None:
    """verl refuses groups of one."""
    kept = [index for index, single in enumerate(alone(batch)) if not single]
    if not kept:
        return
    found, _ = verl.compute_grpo_passk_outcome_advantage(
        token_level_rewards=token_rewards(batch)[kept],
        response_mask=batch.mask[kept],
        index=np.array(batch.groups)[kept],
        config={"norm_adv_by_std_in_grpo": True},
    )
    ours = by_sequence(estimate("grpo-passk", credit_batch(batch)).tolist())
    for row, index in zip(found, kept, strict=True):
        assert row[batch.mask[index]].tolist() == pytest.approx([ours[index]] * batch.lengths[index], abs=1e-5)


@examples
@given(batch=padded())
def test_returns_whitened_over_tokens_are_verls(verl: Any, batch: Padded) -> None:
    """verl adds 1e-8 to the variance, ours to the deviation; and it gives NaN or raises where there is one token."""
    expected, _ = verl.compute_reinforce_plus_plus_outcome_advantage(
        token_level_rewards=token_rewards(batch),
        response_mask=batch.mask.to(torch.float64),
        config=SimpleNamespace(gamma=0.9),
    )
    ours = estimate("reinforce++", credit_batch(batch), gamma=0.9)
    if ours.values.any():
        assert batch.at_replies(expected).tolist() == pytest.approx(ours.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("ours", ["k1", "k2", "k3", "k3+"])
@examples
@given(batch=padded())
def test_divergences_are_verls(verl: Any, ours: str, batch: Padded) -> None:
    """The expected difference: verl holds the value of k3 at 10, where k3 has no gradient and k3+ has that of k2."""
    log_pi = batch.at_replies(batch.log_pi).requires_grad_()
    reference = batch.at_replies(batch.reference)
    expected = verl.kl_penalty(log_pi, reference, ours)
    whole = DIVERGENCES[ours](log_pi - reference)
    held = whole.clamp(max=10.0) if ours.startswith("k3") else whole
    assert held.tolist() == pytest.approx(expected.tolist())
    descended = held if ours == "k3" else whole
    assert gradient(descended.sum(), log_pi) == pytest.approx(gradient(expected.sum(), log_pi))


def test_an_adaptive_coefficient_is_verls(verl: Any) -> None:
    controller = verl.AdaptiveKLController(init_kl_coef=0.3, target_kl=0.1, horizon=50)
    penalty = ReferencePenalty(coefficient=0.3, adaptive={"target": 0.1, "horizon": 50})
    for divergence in (0.05, 0.1, 0.11, 0.5, 0.095):
        found = coefficient_metrics(penalty, divergence, samples=8)
        controller.update(divergence, 8)
        assert found[NEXT_COEFFICIENT] == pytest.approx(controller.value, rel=1e-12)
        penalty = penalty_after(penalty, found)


AGGREGATIONS: dict[Aggregation, str] = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
    "token-sum": "token-sum",
    "sequence-sum": "seq-mean-token-sum",
}


@pytest.mark.parametrize("ours", AGGREGATIONS)
@examples
@given(batch=padded())
def test_aggregations_are_verls(verl: Any, ours: Aggregation, batch: Padded) -> None:
    assert {*AGGREGATIONS, "prompt-mean"} == set(get_args(Aggregation))
    expected = verl.agg_loss(batch.log_pi, batch.mask.to(torch.float64), AGGREGATIONS[ours], loss_scale_factor=7)
    weights = torch.tensor(token_weights(ours, batch.lengths, constant=7.0), dtype=torch.float64)
    found = (batch.log_pi * batch.mask * weights.unsqueeze(1)).sum()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("clipped", {"dual_clip": 3.0}),
    "gspo": ("gspo", {"clip_low": 0.2, "clip_high": 0.28}),
    "cispo": ("cispo", {"clip_low": 0.2, "clip_high": 0.28}),
    "sapo": ("sapo", {}),
    "dppo_tv": ("dppo-tv", {"loss_options": {"delta_low": 0.2, "delta_high": 0.28}}),
    "dppo_kl": ("dppo-kl", {"loss_options": {"delta_low": 0.2, "delta_high": 0.28}}),
    "geo_mean": ("gmpo", {"clip_low": 0.2, "clip_high": 0.28}),
    "gpg": ("reinforce", {}),
}


@pytest.mark.parametrize("theirs", LOSSES)
@examples
@given(batch=padded())
def test_losses_and_their_gradients_are_verls(verl: Any, theirs: str, batch: Padded) -> None:
    loss, options = LOSSES[theirs]
    clips = {"clip_low": 0.2, "clip_high": 0.28} if loss == "clipped" else {}
    by_sequences = theirs in ("gspo", "sapo", "geo_mean")
    aggregation = "sequence-mean" if by_sequences else "token-mean"
    log_pi = batch.log_pi.clone().requires_grad_()
    config = SimpleNamespace(
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=3.0,
        get=lambda key, default=None: {"clip_ratio_c": 3.0}.get(key, default),
        policy_loss={"tau_pos": 1.0, "tau_neg": 1.05},
        tau_pos=1.0,
        tau_neg=1.05,
        global_batch_info={},
    )
    sys.modules["verl.workers.config"].ActorConfig = SimpleNamespace  # type: ignore[attr-defined]
    verl.ActorConfig = SimpleNamespace
    expected, _ = verl.get_policy_loss_fn(theirs)(
        old_log_prob=batch.log_mu,
        log_prob=log_pi,
        advantages=batch.advantages.unsqueeze(1).expand(batch.mask.shape),
        response_mask=batch.mask.to(torch.float64),
        loss_agg_mode=AGGREGATIONS["sequence-mean" if by_sequences else "token-mean"],
        config=config,
    )
    chosen = UpdateSettings(**PLAIN, loss=loss, aggregation=aggregation, **options, **clips)  # type: ignore[arg-type]
    found, _ = objective(
        batch.at_replies(log_pi), batch.at_replies(batch.entropy), batch.reply_tokens(chosen.aggregation), chosen
    )
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert gradient(found, log_pi) == pytest.approx(gradient(expected, log_pi), abs=1e-6)


@examples
@given(batch=padded())
def test_advantages_of_a_critic_are_verls(verl: Any, batch: Padded) -> None:
    """verl adds 1e-8 to the variance in whitening, ours to the deviation."""
    expected, returns = verl.compute_gae_advantage_return(
        token_level_rewards=token_rewards(batch),
        values=batch.reference,
        response_mask=batch.mask.to(torch.float64),
        gamma=0.9,
        lam=0.8,
    )
    values = [row[mask].tolist() for row, mask in zip(batch.reference, batch.mask, strict=True)]
    with_critic = replace(credit_batch(batch), values=values)
    ours = estimate("gae", with_critic, gamma=0.9, lam=0.8)
    assert batch.at_replies(expected).tolist() == pytest.approx(ours.values.tolist(), abs=1e-4)
    targets = value_targets("gae", with_critic, gamma=0.9, lam=0.8)
    assert batch.at_replies(returns).tolist() == pytest.approx(targets.values.tolist())


@examples
@given(batch=padded())
def test_rewards_that_are_normalised_apart_are_verls_where_replies_are_equally_long(verl: Any, batch: Padded) -> None:
    """The expected differences: verl whitens over tokens, which is the same with one token each; and groups of one keep
    their reward there.
    """
    kept = [index for index, single in enumerate(alone(batch)) if not single]
    if not kept:
        return
    groups = np.array(batch.groups)[kept]
    rewards = {"right": np.array(batch.rewards)[kept], "neat": batch.advantages.numpy()[kept]}
    found, _ = verl.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros((len(kept), 1)),
        response_mask=torch.ones((len(kept), 1)),
        index=groups,
        epsilon=1e-6,
        config={"gdpo_reward_keys": ["right", "neat"], "gdpo_reward_weights": [1.0, 0.5]},
        non_tensor_batch=rewards,
        batch={"prompts": torch.zeros((len(kept), 1)), "attention_mask": torch.ones((len(kept), 2), dtype=torch.long)},
    )
    ours = CreditBatch(
        group=groups.tolist(),
        turn_rewards=[[0.0]] * len(kept),
        outcome=[0.0] * len(kept),
        named_rewards=np.stack(list(rewards.values()), axis=1).tolist(),
        reward_weights=[[1.0, 0.5]] * len(kept),
    )
    expected = by_sequence(estimate("gdpo", ours, epsilon=1e-6).tolist())
    assert found[:, 0].tolist() == pytest.approx(expected, abs=1e-4)


OF_SELECTION: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "clip_cov": (
        "clipped",
        {"clip_low": 0.9, "clip_high": 5.0},
        {"clip_cov_ratio": 0.99, "clip_cov_lb": 0.05, "clip_cov_ub": 5.0},
    ),
    "kl_cov": ("importance-sampling", {}, {"kl_cov_ratio": 0.4, "ppo_kl_coef": 0.7}),
    "dro": ("dro", {"loss_options": {"beta": 0.5}}, {"dro_beta": 0.5}),
}


@pytest.mark.parametrize("theirs", OF_SELECTION)
@examples
@given(batch=padded())
def test_losses_of_selected_tokens_and_of_a_quadratic_penalty_are_verls(verl: Any, theirs: str, batch: Padded) -> None:
    """The expected difference: verl selects by the policy of each step, ours by that before the first; here both by the
    same one. The share of Clip-Cov is so large that it draws all candidates, and the clips so far that nothing is.
    """
    loss, options, in_verl = OF_SELECTION[theirs]
    log_pi = batch.log_pi.clone().requires_grad_()
    sys.modules["verl.workers.config"].ActorConfig = SimpleNamespace  # type: ignore[attr-defined]
    config = SimpleNamespace(
        clip_ratio=0.9,
        clip_ratio_low=0.9,
        clip_ratio_high=5.0,
        policy_loss=SimpleNamespace(**in_verl),
        global_batch_info={},
    )
    expected, _ = verl.get_policy_loss_fn(theirs)(
        old_log_prob=batch.log_mu,
        log_prob=log_pi,
        advantages=batch.advantages.unsqueeze(1).expand(batch.mask.shape).clone(),
        response_mask=batch.mask.to(torch.float64),
        loss_agg_mode="token-mean",
        config=config,
    )
    tokens = batch.reply_tokens("token-mean")
    read = ReplyTokenInputs(tokens.advantages.numpy(), batch.at_replies(batch.log_pi).numpy(), None)
    assume(theirs != "kl_cov" or len({*covariance_terms(read).round(9).tolist()}) == len(read.advantages))
    if theirs == "clip_cov":
        factors = clip_cov(read, 0, share=0.99, low=0.05, high=5.0).factors
        tokens = replace(tokens, factors=torch.from_numpy(factors))
    if theirs == "kl_cov":
        tokens = replace(tokens, pulls=torch.from_numpy(kl_cov(read, 0, share=0.4, coefficient=0.7).pulls))
    settings_of_loss = UpdateSettings(**PLAIN, loss=loss, **options)  # type: ignore[arg-type]
    found, _ = objective(batch.at_replies(log_pi), batch.at_replies(batch.entropy), tokens, settings_of_loss)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert gradient(found, log_pi) == pytest.approx(gradient(expected, log_pi), abs=1e-6)
