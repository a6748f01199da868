"""Our objective beside TRL's own loss function: values and gradients, on ragged padded batches.

`GRPOTrainer._compute_loss` is called as it is, on a stand-in for the trainer that has its settings and returns given
log-probabilities in place of a model's. Its advantages are computed in the middle of its training step; that step is
compared as a whole in `tests/policy/test_against_trl.py`. TRL belongs to the development extra.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from padded_samples import Padded, gradient, padded

from turnwise.agent.overlong import penalties
from turnwise.config.optimization import Distillation
from turnwise.credit import CreditBatch, estimate
from turnwise.data.arrays import Ragged
from turnwise.policy.learner.distillation import vocabulary_divergence
from turnwise.policy.learner.learner import objective
from turnwise.policy.learner.token_selection import ReplyTokenInputs, top_entropy
from turnwise.policy.learner.update import UpdateSettings

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed")
LONGEST_COMPLETION = 40
PLAIN: dict[str, Any] = {"learning_rate": 1e-3, "temperature": 1.0, "micro_batch_tokens": 100}
K3: dict[str, Any] = {"coefficient": 0.3, "estimator": "k3"}


@pytest.fixture(scope="module", autouse=True)
def _without_vllm() -> Iterator[None]:
    """TRL imports vLLM where it is installed, which takes seconds, and samples nothing with it here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm", None)
        yield


def trl_loss(batch: Padded, log_pi: torch.Tensor, **changes: Any) -> torch.Tensor:
    """TRL's loss on a padded batch, with its settings changed."""
    from trl import GRPOConfig, GRPOTrainer

    known = {name: field.default for name, field in GRPOConfig.__dataclass_fields__.items()}
    args = SimpleNamespace(**{**known, "steps_per_generation": 1, **changes})
    accelerator = SimpleNamespace(
        gather=lambda values: values,
        reduce=lambda values, reduction: values,
        pad_across_processes=lambda values, dim, pad_index: values,
        num_processes=1,
    )
    trainer = SimpleNamespace(
        args=args,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        beta=args.beta,
        top_entropy_quantile=args.top_entropy_quantile,
        off_policy_mask_threshold=args.off_policy_mask_threshold,
        importance_sampling_level=args.importance_sampling_level,
        loss_type=args.loss_type,
        epsilon_low=args.epsilon,
        epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        max_completion_length=LONGEST_COMPLETION,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *of_model, **further: (log_pi, batch.entropy, None),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
    )
    trainer.get_high_entropy_mask = partial(GRPOTrainer.get_high_entropy_mask, trainer)
    nothing = torch.zeros((len(batch.mask), 0), dtype=torch.long)
    whole = torch.ones_like(batch.mask, dtype=torch.long)
    loss: torch.Tensor = GRPOTrainer._compute_loss(
        trainer,
        None,
        {
            "prompt_ids": nothing,
            "prompt_mask": nothing,
            "completion_ids": whole,
            "completion_mask": whole,
            "tool_mask": batch.mask.long(),
            "advantages": batch.advantages,
            "old_per_token_logps": batch.log_mu,
            "ref_per_token_logps": batch.reference,
            "num_items_in_batch": batch.mask.sum(),
        },
    )
    return loss


def our_loss(batch: Padded, log_pi: torch.Tensor, chosen: UpdateSettings) -> torch.Tensor:
    tokens = batch.reply_tokens(chosen.aggregation, chosen.aggregation_constant)
    return objective(batch.at_replies(log_pi), batch.at_replies(batch.entropy), tokens, chosen)[0]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"aggregation": "sequence-mean"}),
    "bnpo": ({"loss_type": "bnpo"}, {}),
    "dapo, clip higher": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"clip_high": 0.28}),
    "dr_grpo": (
        {"loss_type": "dr_grpo"},
        {"aggregation": "constant", "aggregation_constant": float(LONGEST_COMPLETION)},
    ),
    "delta": ({"loss_type": "bnpo", "delta": 1.3}, {"dual_clip": 1.3}),
    "sequence level": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss": "gspo", "aggregation": "sequence-mean", "clip_low": 0.2, "clip_high": 0.2},
    ),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss": "gspo", "aggregation": "sequence-sum", "clip_low": 0.2, "clip_high": 0.2},
    ),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.4}, {"loss": "cispo", "clip_high": 0.4}),
    "sapo": ({"loss_type": "sapo"}, {"loss": "sapo", "aggregation": "sequence-mean"}),
    "vespo": ({"loss_type": "vespo"}, {"loss": "vespo"}),
    "beta": ({"loss_type": "bnpo", "beta": 0.3}, {"reference": {**K3, "reweighted": True}}),
    "beta without its correction": (
        {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": False},
        {"reference": K3},
    ),
    "off-policy mask": ({"loss_type": "bnpo", "off_policy_mask_threshold": 0.1}, {"off_policy_bound": 0.1}),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=30, deadline=None)
@given(batch=padded())
def test_the_objective_and_its_gradient_are_trls(case: str, batch: Padded) -> None:
    theirs, ours = CASES[case]
    log_pi = batch.log_pi.clone().requires_grad_()
    expected, found = trl_loss(batch, log_pi, **theirs), our_loss(batch, log_pi, UpdateSettings(**PLAIN, **ours))
    exact = 1e-6 if case == "sapo" else 1e-9  # TRL's temperatures of SAPO are in float32, 1.05 as 1.0499999523
    assert found.item() == pytest.approx(expected.item(), abs=exact)
    assert gradient(found, log_pi) == pytest.approx(gradient(expected, log_pi), abs=exact)


@settings(max_examples=30, deadline=None)
@given(batch=padded(), share=st.floats(0.1, 0.9))
def test_the_tokens_of_high_entropy_are_trls_where_one_step_is_the_batch(batch: Padded, share: float) -> None:
    entropies = batch.at_replies(batch.entropy).numpy()
    kept = top_entropy(ReplyTokenInputs(entropies, entropies, entropies), 0, share=share).factors
    log_pi = batch.log_pi.clone().requires_grad_()
    expected = trl_loss(batch, log_pi, loss_type="bnpo", top_entropy_quantile=share)
    slopes = np.array(gradient(expected, log_pi))[batch.mask.flatten().numpy()]
    everything = gradient(trl_loss(batch, log_pi, loss_type="bnpo"), log_pi)
    # TRL takes the quantile in float32, where a token at the threshold may fall on the other side of it.
    edge = np.abs(entropies - np.quantile(entropies, 1.0 - share)) < 1e-5
    inside = ~edge
    assert slopes[inside] == pytest.approx((np.array(everything)[batch.mask.flatten().numpy()] * kept)[inside])


def test_a_log_ratio_beyond_20_nats_is_clamped_here_and_not_in_trl() -> None:
    """The expected difference: of a token with A < 0 TRL's loss grows as exp(log ratio), ours stops at exp(20)."""
    batch = Padded(
        mask=torch.ones((1, 1), dtype=torch.bool),
        log_pi=torch.tensor([[-1.0]], dtype=torch.float64),
        log_mu=torch.tensor([[-26.0]], dtype=torch.float64),
        reference=torch.zeros((1, 1), dtype=torch.float64),
        entropy=torch.zeros((1, 1), dtype=torch.float64),
        rewards=(0.0,),
        groups=(0,),
        advantages=torch.tensor([-1.0], dtype=torch.float64),
    )
    assert trl_loss(batch, batch.log_pi, loss_type="bnpo").item() == pytest.approx(np.exp(25.0))
    assert our_loss(batch, batch.log_pi, UpdateSettings(**PLAIN)).item() == pytest.approx(np.exp(20.0))


def test_the_overlong_penalty_is_trls() -> None:
    from trl.rewards import get_soft_overlong_punishment

    lengths = list(range(1, 40))
    expected = get_soft_overlong_punishment(30, 10)(completion_ids=[[1] * length for length in lengths])
    episode: Any = SimpleNamespace(turns=[SimpleNamespace(reply_tokens=(1,) * length) for length in lengths])
    assert penalties(episode, longest=30, buffer=10) == pytest.approx(expected)


@settings(max_examples=20, deadline=None)
@given(batch=padded(), seed=st.integers(0, 2**32 - 1))
def test_self_distillation_is_trls_sdpo_on_sampled_tokens(batch: Padded, seed: int) -> None:
    from trl.experimental.sdpo.loss_utils import compute_sampled_token_self_distillation_loss

    random = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn((*batch.mask.shape, 7), generator=random, dtype=torch.float64) for _ in range(2))
    tokens = torch.randint(7, batch.mask.shape, generator=random)
    student.requires_grad_()
    theirs = compute_sampled_token_self_distillation_loss(student, teacher, tokens, distillation_alpha=1.0)
    expected = ((theirs * batch.mask).sum(-1) / batch.mask.sum(-1)).mean()
    log_pi, log_teacher = (
        torch.log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1) for logits in (student, teacher)
    )
    gains = (log_teacher - log_pi.detach())[batch.mask].numpy()
    episodes = CreditBatch(
        group=batch.groups,
        turn_rewards=[[0.0]] * len(batch.groups),
        outcome=batch.rewards,
        reply_lengths=[[length] for length in batch.lengths],
        hindsight=Ragged.with_lengths(gains, batch.lengths),
    )
    advantages = torch.from_numpy(estimate("self-distillation", episodes).values)
    replies = replace(batch.reply_tokens("sequence-mean"), advantages=advantages)
    chosen = UpdateSettings(**PLAIN, loss="reinforce", aggregation="sequence-mean")
    found = objective(batch.at_replies(log_pi), batch.at_replies(batch.entropy), replies, chosen)[0]
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)
    slopes = [torch.autograd.grad(loss, student, retain_graph=True)[0] for loss in (found, expected)]
    assert torch.allclose(*slopes, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(batch=padded(), seed=st.integers(0, 2**32 - 1), interpolation=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_distillation_is_trls_sdpo_and_gkd_over_the_whole_vocabulary(
    batch: Padded, seed: int, interpolation: float
) -> None:
    from trl.experimental.gkd.gkd_trainer import GKDTrainer
    from trl.experimental.sdpo.loss_utils import compute_full_logit_self_distillation_loss

    random = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn((*batch.mask.shape, 7), generator=random, dtype=torch.float64) for _ in range(2))
    student.requires_grad_()
    theirs = compute_full_logit_self_distillation_loss(student, teacher, distillation_alpha=interpolation)
    expected = ((theirs * batch.mask).sum(-1) / batch.mask.sum(-1)).mean()

    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)
    from_teacher = vocabulary_divergence(log_p, log_q, interpolation)
    distillation = Distillation(weight=1.0, interpolation=interpolation)
    chosen = UpdateSettings(**PLAIN, aggregation="sequence-mean", distillation=distillation)
    replies = batch.reply_tokens("sequence-mean")
    inputs = batch.at_replies(log_p[..., 0]), batch.at_replies(batch.entropy)
    found = objective(*inputs, replies, chosen, batch.at_replies(from_teacher))[0]
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)
    slopes = [torch.autograd.grad(loss, student, retain_graph=True)[0] for loss in (found, expected)]
    assert torch.allclose(*slopes, atol=1e-7)  # TRL's interpolation is a number in float32

    labels = torch.where(batch.mask, 0, -100)
    of_gkd = GKDTrainer.generalized_jsd_loss(student, teacher, labels, beta=interpolation, reduction="none")
    assert from_teacher[batch.mask].tolist() == pytest.approx(of_gkd.sum(-1).tolist(), abs=1e-9)
