"""The divergence from a reference policy: numbers by hand, and which gradient each estimator has in each place."""

from __future__ import annotations

import math

import pytest
import torch
from refusals import refusal

from turnwise.config.optimization import ReferencePenalty
from turnwise.data.arrays import Ragged, SequenceBatch, TokenSequence
from turnwise.policy.divergence import DIVERGENCES, k1, k2, k3, reference_rewards
from turnwise.policy.divergence import divergence as penalty_estimate

LOGITS = torch.tensor([0.3, -0.5, 1.1, 0.0], dtype=torch.float64)
REFERENCE = torch.tensor([1.0, 0.2, -0.7, 0.4], dtype=torch.float64).log_softmax(-1)


def test_the_estimators_by_hand() -> None:
    # pi = 0.4, ref = 0.2: d = log 2 = 0.693147; k2 = 0.240227; k3 = 0.5 + 0.693147 - 1 = 0.193147
    # pi = 0.1, ref = 0.2: d = -0.693147;        k2 = 0.240227; k3 = 2 - 0.693147 - 1 = 0.306853
    log_ratio = torch.tensor([math.log(2.0), -math.log(2.0)], dtype=torch.float64)
    assert k1(log_ratio).tolist() == pytest.approx([0.693147, -0.693147], abs=1e-6)
    assert k2(log_ratio).tolist() == pytest.approx([0.240227, 0.240227], abs=1e-6)
    assert k3(log_ratio).tolist() == pytest.approx([0.193147, 0.306853], abs=1e-6)


@pytest.mark.parametrize("log_ratio", [20.0, -20.0, 50.0, -50.0, 90.0, -90.0])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_policy_far_from_its_reference_has_a_finite_divergence(name: str, log_ratio: float) -> None:
    d = torch.tensor([log_ratio], requires_grad=True)
    found = DIVERGENCES[name](d)
    (slope,) = torch.autograd.grad(found.sum(), d)
    at = math.copysign(20.0, log_ratio)
    of_k3 = math.exp(-at) + at - 1.0, 0.0 if abs(log_ratio) > 20 else 1.0 - math.exp(-at)
    expected = {
        "k1": (log_ratio, 1.0),
        "k2": (log_ratio**2 / 2, log_ratio),
        "k3": of_k3,
        "k3+": (of_k3[0], log_ratio),
    }[name]
    assert (found.item(), slope.item()) == pytest.approx(expected, rel=1e-5)


def divergence(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(first || second) of two log-distributions."""
    return (first.exp() * (first - second)).sum()


def gradient(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, logits)[0]


def expected_gradient(name: str, place: str, logits: torch.Tensor) -> torch.Tensor:
    """Over every token that pi may sample, with its probability: the gradient of the estimator in its place."""
    log_pi = logits.log_softmax(-1)
    probability = log_pi.detach().exp()
    estimate = DIVERGENCES[name](log_pi - REFERENCE)
    if place == "loss":
        return gradient((probability * estimate).sum(), logits)
    return gradient((probability * estimate.detach() * log_pi).sum(), logits)


def test_the_mean_of_k1_and_of_k3_is_the_divergence() -> None:
    log_pi = LOGITS.log_softmax(-1)
    for name in ("k1", "k3"):
        assert (log_pi.exp() * DIVERGENCES[name](log_pi - REFERENCE)).sum().item() == pytest.approx(
            divergence(log_pi, REFERENCE).item(), rel=1e-12
        )


def test_k1_has_no_gradient_in_the_loss_and_the_right_one_in_the_reward() -> None:
    logits = LOGITS.clone().requires_grad_()
    right = gradient(divergence(logits.log_softmax(-1), REFERENCE), logits)
    assert expected_gradient("k1", "loss", logits).norm() < 1e-15 < right.norm()
    assert torch.allclose(expected_gradient("k1", "reward", logits), right, rtol=1e-12)


def test_k2_in_the_loss_has_the_gradient_of_the_divergence_and_k3_that_of_the_other_direction() -> None:
    logits = LOGITS.clone().requires_grad_()
    right = gradient(divergence(logits.log_softmax(-1), REFERENCE), logits)
    other = gradient(divergence(REFERENCE, logits.log_softmax(-1)), logits)
    assert torch.allclose(expected_gradient("k2", "loss", logits), right, rtol=1e-12)
    assert torch.allclose(expected_gradient("k3", "loss", logits), other, rtol=1e-12)
    assert not torch.allclose(right, other, rtol=0.1)


def test_k2_and_k3_in_the_reward_hold_nothing_back_near_the_reference() -> None:
    """At a distance of 0.001 the right gradient is of that order, theirs of its square."""
    logits = (REFERENCE + 1e-3 * LOGITS).detach().requires_grad_()
    right = gradient(divergence(logits.log_softmax(-1), REFERENCE), logits)
    assert right.norm() > 1e-4
    for name in ("k2", "k3"):
        assert expected_gradient(name, "reward", logits).norm() < 1e-6, name


def test_rewards_are_minus_the_coefficient_times_the_estimate_of_each_reply_token() -> None:
    sequences = SequenceBatch.of(
        [TokenSequence((9, 3, 9, 4), (-1, 0, -1, 1), (0.0, math.log(0.4), 0.0, math.log(0.1)))]
    )
    reference = Ragged.of([(math.nan, math.log(0.2), 7.0, math.log(0.2))])
    penalty = ReferencePenalty(coefficient=0.1, estimator="k1", place="reward")
    assert reference_rewards(sequences, reference, penalty) == pytest.approx([-0.0693147, 0.0693147], abs=1e-7)
    squared = ReferencePenalty(coefficient=0.5, estimator="k2", place="reward")
    assert reference_rewards(sequences, reference, squared) == pytest.approx([-0.120113] * 2, abs=1e-6)
    with pytest.raises(ValueError, match="one reference log-probability per token; found 2 for 4"):
        reference_rewards(sequences, Ragged.of([(0.0, 0.0)]), penalty)


def test_k1_in_the_loss_is_refused_with_the_reason() -> None:
    for values in ({"place": "loss"}, {}):
        message = refusal(ReferencePenalty, {"coefficient": 0.1, "estimator": "k1", **values})
        assert message.startswith("place must be reward for the estimator k1") and "zero in expectation" in message


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"coefficient": 0.0}, "coefficient must be above 0: for no penalty set reference to null; found 0.0"),
        ({"coefficient": -1.0}, "must be above 0"),
        ({"estimator": "k4"}, "must be one of k1, k2, k3, k3+; found 'k4'"),
        ({"place": "advantage"}, "must be one of loss, reward; found 'advantage'"),
    ],
)
def test_a_penalty_that_makes_no_sense_is_refused(wrong: dict[str, object], reason: str) -> None:
    assert reason in refusal(ReferencePenalty, {"coefficient": 0.1, **wrong})


def test_a_clamp_holds_k3_from_above_and_takes_its_gradient_there() -> None:
    # k3(-2) = e^2 - 3 = 4.389; k3(-3) = e^3 - 4 = 16.086, held at 10. The slope of k3 is 1 - exp(-d).
    penalty = ReferencePenalty(coefficient=0.1, estimator="k3", clamp=10.0)
    d = torch.tensor([-2.0, -3.0], dtype=torch.float64, requires_grad=True)
    estimates = penalty_estimate(d, penalty)
    (slope,) = torch.autograd.grad(estimates.sum(), d)
    assert estimates.tolist() == pytest.approx([4.389056, 10.0], abs=1e-6)
    assert slope.tolist() == pytest.approx([1.0 - math.exp(2.0), 0.0])
    assert penalty_estimate(d, ReferencePenalty(coefficient=0.1, estimator="k3"))[1].item() == pytest.approx(16.085537)


def test_a_clamp_belongs_to_k3() -> None:
    wrong = {"coefficient": 0.1, "estimator": "k2", "clamp": 10.0}
    assert "clamp: belongs to the estimator k3" in refusal(ReferencePenalty, wrong)
