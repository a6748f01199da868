"""Which tokens the loss counts, by hand, and what becomes of the objective."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnwise.config.optimization import ReferencePenalty, TokenSelection
from turnwise.data.arrays import Ragged, SequenceBatch, TokenSequence
from turnwise.policy.learner.learner import ReplyTokens, objective
from turnwise.policy.learner.token_selection import (
    ReplyTokenInputs,
    clip_cov,
    covariance_terms,
    kl_cov,
    top_entropy,
)
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

# advantages, mean 1: differences 1, 2, -3, 0;  log p, mean -2: differences 1, 0.5, -1, -0.5
TOKENS = ReplyTokenInputs(
    advantages=np.array([2.0, 3.0, -2.0, 1.0]),
    log_probabilities=np.array([-1.0, -1.5, -3.0, -2.5]),
    entropies=np.array([0.1, 0.4, 0.2, 0.3]),
)


def test_the_terms_of_the_covariance_by_hand() -> None:
    assert covariance_terms(TOKENS).tolist() == pytest.approx([1.0, 1.0, 3.0, 0.0])


def test_clip_cov_leaves_out_a_share_of_the_tokens_between_its_bounds() -> None:
    # 0.5 x 4 = 2 of the tokens with 0.5 < c < 5: one of the three is kept.
    for seed in range(4):
        factors = clip_cov(TOKENS, seed, share=0.5, low=0.5).factors
        assert sorted(factors[:3].tolist()) == [0.0, 0.0, 1.0] and factors[3] == 1.0
        assert factors.tolist() == clip_cov(TOKENS, seed, share=0.5, low=0.5).factors.tolist()
    assert len({tuple(clip_cov(TOKENS, seed, share=0.5, low=0.5).factors) for seed in range(20)}) > 1
    assert clip_cov(TOKENS, 0, share=0.5).factors.tolist() == [1.0, 1.0, 0.0, 1.0]  # above 1 there is one alone
    assert clip_cov(TOKENS, 0, share=0.5, high=2.0).factors.tolist() == [1.0] * 4
    assert clip_cov(TOKENS, 0).factors.tolist() == [1.0, 1.0, 0.0, 1.0]  # at least one, however small the share


def test_kl_cov_holds_the_tokens_of_the_largest_covariance() -> None:
    held = kl_cov(TOKENS, 0, share=0.5, coefficient=0.7)
    assert held.pulls is not None
    assert held.pulls.tolist() == [0.7, 0.0, 0.7, 0.0]
    assert held.factors.tolist() == [1.0] * 4


def test_top_entropy_keeps_the_tokens_above_a_quantile() -> None:
    # The quantile 0.5 of 0.1, 0.2, 0.3, 0.4 is 0.25, the quantile 0.8 is 0.34.
    assert top_entropy(TOKENS, 0, share=0.5).factors.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert top_entropy(TOKENS, 0).factors.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert top_entropy(TOKENS, 0, share=1.0).factors.tolist() == [1.0] * 4  # the lowest is the quantile itself


def update_batch() -> UpdateBatch:
    """TOKENS as two sequences of two reply tokens, each after an observation token."""
    log_p = TOKENS.log_probabilities.tolist()
    rows = [TokenSequence((9, 3, 4), (-1, 0, 0), (0.0, *pair)) for pair in (log_p[:2], log_p[2:])]
    return UpdateBatch.from_reply_tokens(SequenceBatch.of(rows), [TOKENS.advantages[:2], TOKENS.advantages[2:]])


def test_a_batch_has_what_becomes_of_each_token_at_its_reply_tokens() -> None:
    batch = update_batch()
    held, metrics = batch.with_selected_tokens(
        TokenSelection(rule="kl-cov", options={"share": 0.5, "coefficient": 0.7}), None, 0
    )
    assert held.ratio_pulls is not None and held.loss_factors is not None
    assert held.ratio_pulls.tolist() == [[0.0, 0.7, 0.0], [0.0, 0.7, 0.0]]
    assert metrics == {"token_selection_share": 0.5}
    entropies = Ragged.of([[9.0, 0.1, 0.4], [9.0, 0.2, 0.3]])  # those of observation tokens are not read
    kept, metrics = batch.with_selected_tokens(TokenSelection(rule="top-entropy", options={"share": 0.5}), entropies, 0)
    assert kept.loss_factors is not None and kept.ratio_pulls is None
    assert kept.loss_factors.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert metrics == {"token_selection_share": 0.5}


def test_covariances_are_those_of_the_policy_that_the_ratio_is_taken_to() -> None:
    batch = update_batch()
    own = Ragged.of([[0.0, -1.0, -1.0], [0.0, -1.0, -9.0]])  # differences 2, 2, 2, -6: c 2, 4, -6, 0
    held, _ = replace(batch, proximal_log_probabilities=own).with_selected_tokens(
        TokenSelection(rule="kl-cov"), None, 0
    )
    assert held.ratio_pulls is not None
    assert held.ratio_pulls.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def reply_tokens(**changes: object) -> ReplyTokens:
    """Two sequences of two reply tokens, with weights 1 / 4; ratios 2, 1, 0.5, 0.25 of the log-probabilities below."""
    values = {
        "engine": torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64),
        "behaviour": torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64),
        "advantages": torch.tensor([1.0, -2.0, 3.0, -4.0], dtype=torch.float64),
        "weights": torch.full((4,), 0.25, dtype=torch.float64),
        "sequence": torch.tensor([0, 0, 1, 1]),
        "reference": None,
        "importance": None,
    }
    return ReplyTokens(**{**values, **changes})  # type: ignore[arg-type]


def descended(tokens: ReplyTokens, **options: object) -> tuple[float, list[float], dict[str, float]]:
    """The objective of `importance-sampling`, its gradient at each log-probability, and the sums of some settings."""
    settings = UpdateSettings(
        learning_rate=1e-3, temperature=1.0, micro_batch_tokens=8, loss="importance-sampling", **options
    )
    ratios = torch.tensor([2.0, 1.0, 0.5, 0.25], dtype=torch.float64)
    log_pi = (tokens.behaviour + ratios.log()).requires_grad_()
    value, tally = objective(log_pi, torch.zeros(4, dtype=torch.float64), tokens, settings)
    (gradient,) = torch.autograd.grad(value, log_pi)
    return value.item(), gradient.tolist(), dict(tally.further)


def test_a_token_that_is_left_out_has_no_loss_and_counts_in_the_aggregation() -> None:
    # -(2 x 1) + 0 - (0.5 x 3) + 0.25 x 4 over 4
    value, gradient, _ = descended(reply_tokens(factors=torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)))
    assert value == pytest.approx((-2.0 - 1.5 + 1.0) / 4)
    assert gradient == pytest.approx([-0.5, 0.0, -0.375, 0.25])


def test_a_token_that_is_held_pays_for_its_log_ratio() -> None:
    # without: -2 + 2 - 1.5 + 1; with 0.8 x |log 0.25| = 1.1090
    value, gradient, _ = descended(reply_tokens(pulls=torch.tensor([0.0, 0.0, 0.0, 0.8], dtype=torch.float64)))
    assert value == pytest.approx((-0.5 + 0.8 * math.log(4.0)) / 4)
    assert gradient == pytest.approx([-0.5, 0.5, -0.375, 0.25 - 0.2])


def test_bad_tokens_of_a_sequence_that_the_policy_has_left_have_no_loss() -> None:
    # mean of log mu - log pi: -log 2 / 2 = -0.347; (log 2 + log 4) / 2 = 1.040. Bad ones are the second and the fourth.
    value, gradient, further = descended(reply_tokens(), off_policy_bound=1.0)
    assert value == pytest.approx((-2.0 + 2.0 - 1.5) / 4)
    assert gradient == pytest.approx([-0.5, 0.5, -0.375, 0.0])
    assert further == {"off_policy_fraction": 1.0}
    assert descended(reply_tokens(), off_policy_bound=1.1)[2] == {"off_policy_fraction": 0.0}
    # It is measured from the engine, where the ratio is taken to the learner's own.
    apart = reply_tokens(engine=torch.tensor([-1.0, -1.0, -1.5, -1.5], dtype=torch.float64))
    assert descended(apart, off_policy_bound=1.0)[2] == {"off_policy_fraction": 0.0}
    # What is left out has no policy loss; the pull that holds a token stays.
    held = reply_tokens(pulls=torch.tensor([0.0, 0.0, 0.0, 0.8], dtype=torch.float64))
    assert descended(held, off_policy_bound=1.0)[1] == pytest.approx([-0.5, 0.5, -0.375, -0.2])


@pytest.mark.parametrize("reweighted", [False, True])
def test_the_reweighted_penalty_is_the_divergence_of_the_policy_whatever_sampled(reweighted: bool) -> None:
    """Over every token that mu may sample: r k3 has the value and the gradient of KL(pi || ref), k3 alone neither."""
    logits = torch.tensor([0.3, -0.5, 1.1, 0.0], dtype=torch.float64, requires_grad=True)
    mu = torch.tensor([0.9, 0.1, -0.3, 0.5], dtype=torch.float64).log_softmax(-1)
    reference = torch.tensor([1.0, 0.2, -0.7, 0.4], dtype=torch.float64).log_softmax(-1)
    log_pi = logits.log_softmax(-1)
    tokens = reply_tokens(
        engine=mu, behaviour=mu, advantages=torch.zeros(4, dtype=torch.float64), weights=mu.exp(), reference=reference
    )
    penalty = ReferencePenalty(coefficient=1.0, estimator="k3", reweighted=reweighted)
    settings = UpdateSettings(learning_rate=1e-3, temperature=1.0, micro_batch_tokens=8, reference=penalty)
    value, _ = objective(log_pi, torch.zeros(4, dtype=torch.float64), tokens, settings)
    truth = (log_pi.exp() * (log_pi - reference)).sum()
    (found,), (expected,) = (torch.autograd.grad(each, logits, retain_graph=True) for each in (value, truth))
    assert (value.item() == pytest.approx(truth.item())) == reweighted
    assert (found.tolist() == pytest.approx(expected.tolist())) == reweighted
