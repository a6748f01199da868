"""Self-distillation with hindsight, by hand, and against the exact gradient of a divergence."""

from itertools import product

import numpy as np
import pytest
from credit_samples import close

from turnwise.credit import CreditBatch, estimate

BATCH = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.0, 0.5], [0.0]],
    outcome=[1.0, 0.0],
    reply_lengths=[[2, 1], [2]],
    hindsight=[[0.4, -0.2, 0.8], [-1.0, 0.0]],
)


def test_a_token_gets_what_it_gains_once_the_end_is_known() -> None:
    assert close(estimate("self-distillation", BATCH), [[0.4, -0.2, 0.8], [-1.0, 0.0]])


def test_later_gains_count_with_gamma_across_turns() -> None:
    # 0.4 + 0.5 (-0.2 + 0.5 * 0.8), -0.2 + 0.5 * 0.8, 0.8
    assert close(estimate("self-distillation", BATCH, gamma=0.5), [[0.5, 0.2, 0.8], [-1.0, 0.0]])


def test_the_outcome_may_be_added_as_it_is_compared_within_the_group() -> None:
    found = estimate(
        "self-distillation",
        BATCH,
        coefficient=0.5,
        outcome_coefficient=2.0,
        rewards="merged",
        deviation="none",
    )
    # Merged rewards 1.5 and 0: 0.75 either way, doubled.
    assert close(found, [[1.7, 1.4, 1.9], [-2.0, -1.5]])


@pytest.mark.parametrize(("gamma", "exact"), [(1.0, True), (0.0, False)])
def test_with_gamma_1_the_gradient_is_that_of_the_divergence_of_whole_episodes(gamma: float, exact: bool) -> None:
    # Two tokens of two kinds; the second depends on the first, in the policy (by logits) and in the teacher.
    logits = np.array([0.3, -0.5, 0.8])  # of token 1; of token 2 after a 0; of token 2 after a 1
    teacher = np.array([0.6, 0.9, 0.2])  # probabilities of a 1, in the same order

    def chances(logit: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-logit))

    def divergence(at: np.ndarray) -> float:
        total = 0.0
        for first, second in product((0, 1), repeat=2):
            places, tokens = [0, 1 + first], [first, second]
            ours = [abs(1 - token - chances(at)[place]) for token, place in zip(tokens, places, strict=True)]
            theirs = [abs(1 - token - teacher[place]) for token, place in zip(tokens, places, strict=True)]
            total += np.prod(ours) * (np.log(ours) - np.log(theirs)).sum()
        return float(total)

    gradient = np.zeros(3)
    for first, second in product((0, 1), repeat=2):
        places, tokens = [0, 1 + first], [first, second]
        ours = np.array([abs(1 - token - chances(logits)[place]) for token, place in zip(tokens, places, strict=True)])
        theirs = np.array([abs(1 - token - teacher[place]) for token, place in zip(tokens, places, strict=True)])
        episode = CreditBatch(
            group=[0],
            turn_rewards=[[0.0]],
            outcome=[0.0],
            reply_lengths=[[2]],
            hindsight=[(np.log(theirs) - np.log(ours)).tolist()],
        )
        (advantages,) = estimate("self-distillation", episode, gamma=gamma)
        for advantage, token, place in zip(advantages, tokens, places, strict=True):
            gradient[place] += np.prod(ours) * advantage * (token - chances(logits)[place])
    step = 1e-6
    slopes = [(divergence(logits - step * unit) - divergence(logits + step * unit)) / (2 * step) for unit in np.eye(3)]
    assert np.allclose(gradient, slopes, atol=1e-8) == exact
