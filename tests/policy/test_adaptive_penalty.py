"""The coefficient of the penalty follows the divergence, by hand."""

from __future__ import annotations

import pytest
from refusals import refusal

from turnwise.config.optimization import ReferencePenalty
from turnwise.policy.adaptive_penalty import COEFFICIENT, NEXT_COEFFICIENT, coefficient_metrics, penalty_after

PENALTY = ReferencePenalty(coefficient=0.5, adaptive={"target": 0.1, "horizon": 100})


@pytest.mark.parametrize(
    ("divergence", "following"),
    [
        (0.1, 0.5),  # on target
        (0.11, 0.5 * (1 + 0.1 * 20 / 100)),
        (0.09, 0.5 * (1 - 0.1 * 20 / 100)),
        (5.0, 0.5 * (1 + 0.2 * 20 / 100)),  # the error counts up to 0.2
        (0.0, 0.5 * (1 - 0.2 * 20 / 100)),
    ],
)
def test_the_coefficient_grows_with_the_divergence_and_the_samples(divergence: float, following: float) -> None:
    found = coefficient_metrics(PENALTY, divergence, samples=20)
    assert found == {COEFFICIENT: 0.5, NEXT_COEFFICIENT: pytest.approx(following)}


def test_a_batch_beyond_the_horizon_counts_as_one_horizon() -> None:
    found = coefficient_metrics(PENALTY, 0.0, samples=1000)
    assert found[NEXT_COEFFICIENT] == pytest.approx(0.5 * (1 - 0.2)), "1 - 0.2 x 10 would turn the penalty's sign"


def test_an_update_goes_on_from_the_policy_that_it_trains() -> None:
    assert penalty_after(PENALTY, {"skipped": 0.0}) == PENALTY  # the run's first policy
    assert penalty_after(PENALTY, {NEXT_COEFFICIENT: 0.7}).coefficient == 0.7
    fixed = ReferencePenalty(coefficient=0.5)
    assert penalty_after(fixed, {NEXT_COEFFICIENT: 0.7}) == fixed
    assert coefficient_metrics(fixed, 0.1, samples=20) == {} == coefficient_metrics(None, 0.0, samples=20)


def test_a_penalty_in_the_reward_does_not_adapt() -> None:
    wrong = {"coefficient": 0.5, "estimator": "k1", "place": "reward", "adaptive": {"target": 0.1}}
    assert "adaptive must be left out with place reward" in refusal(ReferencePenalty, wrong)
    assert "target must be above 0" in refusal(ReferencePenalty, {"coefficient": 0.5, "adaptive": {"target": 0.0}})
