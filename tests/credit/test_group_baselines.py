"""OPO, GPG, MaxRL and pass@k, by hand, and the objectives of the last two by enumeration."""

import math
from dataclasses import replace

import pytest
from credit_samples import SEARCHES, UNEQUAL, close

from turnwise.credit import CreditBatch, estimate

RULES = ("opo", "gpg", "maxrl", "grpo-passk")
WITH_LENGTHS = replace(UNEQUAL, reply_lengths=[[1, 2], [2, 3], [2]])


def of_outcomes(*groups: list[float]) -> CreditBatch:
    outcomes = [outcome for group in groups for outcome in group]
    return CreditBatch(
        group=[index for index, group in enumerate(groups) for _ in group],
        turn_rewards=[[0.0]] * len(outcomes),
        outcome=outcomes,
        reply_lengths=[[2]] * len(outcomes),
    )


def test_opo_weighs_each_reward_by_the_tokens_that_earned_it() -> None:
    # 3, 5 and 2 tokens: outcomes (3 x 1 + 5 x 0 + 2 x 0.5) / 10 = 0.4; merged (3 x 2.5 + 5 x 0.3 + 2 x 0.5) / 10 = 1.0
    assert close(estimate("opo", WITH_LENGTHS), [[0.6, 0.6], [-0.4, -0.4], [0.1]])
    assert close(estimate("opo", WITH_LENGTHS, rewards="merged"), [[1.5, 1.5], [-0.7, -0.7], [-0.5]])


def test_gpg_makes_up_for_the_groups_without_spread() -> None:
    # 2 of 4 trajectories are in the group with spread, and 3 of 4 are rewarded.
    batch = of_outcomes([1.0, 0.0], [1.0, 1.0])
    assert estimate("gpg", batch).tolist() == [[1.0], [-1.0], [0.0], [0.0]]
    assert close(estimate("gpg", batch, counted="rewarded"), [[2 / 3], [-2 / 3], [0.0], [0.0]])
    assert estimate("gpg", of_outcomes([0.0, 0.0])).tolist() == [[0.0], [0.0]]


def test_maxrl_divides_by_the_mean_and_gives_nothing_where_nothing_was_earned() -> None:
    assert estimate("maxrl", of_outcomes([1.0, 0.0, 0.0, 0.0])).tolist() == [[3.0], [-1.0], [-1.0], [-1.0]]
    assert estimate("maxrl", of_outcomes([1.0, 1.0, 0.0, 0.0])).tolist() == [[1.0], [1.0], [-1.0], [-1.0]]
    assert estimate("maxrl", of_outcomes([-1.0, 1.0], [-2.0, 0.5])).tolist() == [[0.0]] * 4


def test_maxrl_gives_nothing_where_rewards_cancel() -> None:
    cancelling = [0.1, 0.2, -0.3]  # their sum is a rounding: 5.6e-17
    assert 0 < math.fsum(cancelling) < 1e-16
    assert estimate("maxrl", of_outcomes(cancelling)).tolist() == [[0.0]] * 3


def test_pass_at_k_pays_the_best_what_would_be_lost_without_it() -> None:
    # outcomes 1, 0, 0.5, whose unbiased deviation is 0.5
    assert close(estimate("grpo-passk", UNEQUAL, epsilon=0.0), [[1.0, 1.0], [0.0, 0.0], [0.0]])
    assert estimate("grpo-passk", UNEQUAL, deviation="none").tolist() == [[0.5, 0.5], [0.0, 0.0], [0.0]]
    assert not estimate("grpo-passk", SEARCHES).values.any()  # two are right: each would be missed by nobody
    by_rounding = of_outcomes([0.1 + 0.1 + 0.1, 0.3, 0.0])
    assert not estimate("grpo-passk", by_rounding).values.any()


def expected_gradient(rule: str, p: float, size: int, **options: str) -> float:
    """The mean over all groups of 1 / G sum of A_i d log pi / d logit, for one choice that is right with p."""
    expected = 0.0
    for right in range(size + 1):
        advantages = estimate(rule, of_outcomes([1.0] * right + [0.0] * (size - right)), **options).values
        slopes = [1.0 - p] * right + [-p] * (size - right)
        probability = math.comb(size, right) * p**right * (1.0 - p) ** (size - right)
        expected += probability * math.fsum((advantages * slopes).tolist()) / size
    return expected


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("size", [2, 4, 7])
def test_the_objectives_are_those_that_the_docstring_says(p: float, size: int) -> None:
    slope = p * (1.0 - p)
    pass_at_k = [k * (1.0 - p) ** (k - 1) * slope for k in range(1, size + 1)]  # d (1 - (1 - p)^k) / d logit
    truncated = math.fsum(of_k / k for k, of_k in enumerate(pass_at_k[:-1], start=1))
    assert expected_gradient("maxrl", p, size) == pytest.approx(truncated)
    assert expected_gradient("grpo-passk", p, size, deviation="none") == pytest.approx(pass_at_k[-1] / size)
    assert expected_gradient("gpg", p, size) == pytest.approx(slope * (size - 1) / size)


@pytest.mark.parametrize("name", RULES)
def test_a_group_that_is_all_alike_and_a_group_of_one_get_nothing(name: str) -> None:
    assert estimate(name, of_outcomes([0.3] * 3)).tolist() == [[0.0]] * 3
    with pytest.warns(UserWarning, match="no baseline"):
        assert estimate(name, of_outcomes([1.0])).tolist() == [[0.0]]


@pytest.mark.parametrize("name", RULES)
def test_rewards_per_token_count_in_the_reward_of_their_trajectory(name: str) -> None:
    paid = replace(of_outcomes([1.0, 0.0, 0.5]), token_rewards=[[-0.1, -0.1], [0.2, 0.0], [0.0, 0.1]])
    assert close(estimate(name, paid), estimate(name, of_outcomes([0.8, 0.2, 0.6])))
