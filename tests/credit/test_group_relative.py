"""GRPO and RLOO, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import SEARCHES, UNEQUAL, close

from turnwise.credit import CreditBatch, estimate

DEVIATION = math.sqrt(2.25 / 3)  # of the outcomes of SEARCHES, unbiased: 0.8660254


def test_grpo_with_outcome_rewards_gives_every_turn_the_normalised_outcome() -> None:
    right = 0.75 / (DEVIATION + 1e-4)  # 0.865925
    assert close(
        estimate("grpo", SEARCHES, rewards="outcome"), [[right, right], [-right, -right], [right, right], [-right]]
    )
    assert right == pytest.approx(0.865925, abs=1e-6)


def test_grpo_with_merged_rewards_normalises_the_sum() -> None:
    # sums 2.2, 0.2, 2.2, 0.0: mean 1.15, deviations 1.05, -0.95, 1.05, -1.15, squares sum 4.43
    divisor = math.sqrt(4.43 / 3) + 1e-4
    a, b, c = 1.05 / divisor, -0.95 / divisor, -1.15 / divisor
    assert close(estimate("grpo", SEARCHES, rewards="merged"), [[a, a], [b, b], [a, a], [c]])
    assert a == pytest.approx(0.86400, abs=1e-5)


def test_one_success_in_a_group_of_eight_is_2_475_unbiased_and_2_646_population() -> None:
    batch = CreditBatch(group=[0] * 8, turn_rewards=[[0.0]] * 8, outcome=[1.0] + [0.0] * 7)
    unbiased = estimate("grpo", batch, epsilon=0.0)  # (7/8) / sqrt((7/8)/7) = (7/8) * sqrt(8)
    population = estimate("grpo", batch, deviation="population", epsilon=0.0)  # (7/8) / sqrt(7/64) = sqrt(7)
    assert unbiased[0][0] == pytest.approx(2.475, abs=5e-4)
    assert population[0][0] == pytest.approx(math.sqrt(7)) == pytest.approx(2.646, abs=5e-4)


def test_no_deviation_leaves_the_scale_of_the_rewards() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[3.0, 1.0])
    assert estimate("grpo", batch, deviation="none").tolist() == [[1.0], [-1.0]]


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    # outcomes 1, 0, 0.5:    1 - 0.25, 0 - 0.75, 0.5 - 0.5
    # merged 2.5, 0.3, 0.5:  2.5 - 0.4, 0.3 - 1.5, 0.5 - 1.4
    assert close(estimate("rloo", UNEQUAL), [[0.75, 0.75], [-0.75, -0.75], [0.0]])
    assert close(estimate("rloo", UNEQUAL, rewards="merged"), [[2.1, 2.1], [-1.2, -1.2], [-0.9]])


def test_rloo_is_the_difference_from_the_mean_times_g_over_g_minus_1() -> None:
    differences = estimate("grpo", SEARCHES, deviation="none")
    assert close(estimate("rloo", SEARCHES), [[4 / 3 * value for value in row] for row in differences])


@pytest.mark.parametrize("name", ["grpo", "rloo"])
@pytest.mark.parametrize("rewards", ["outcome", "merged"])
def test_an_all_equal_group_has_no_signal_at_all(name: str, rewards: str) -> None:
    batch = CreditBatch(group=[0] * 3, turn_rewards=[[0.1, 0.2]] * 3, outcome=[0.3] * 3)
    options = {"epsilon": 0.0} if name == "grpo" else {}
    assert estimate(name, batch, rewards=rewards, **options).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_a_group_of_one_gets_zero_and_a_warning(name: str) -> None:
    batch = CreditBatch(group=[0], turn_rewards=[[0.0]], outcome=[1.0])
    with pytest.warns(UserWarning, match="no baseline"):
        assert estimate(name, batch).tolist() == [[0.0]]


@pytest.mark.parametrize("rewards", ["outcome", "merged"])
def test_rewards_per_token_count_in_the_reward_of_their_trajectory(rewards: str) -> None:
    # A penalty of 0.1 per token, and replies of 1 + 2, 2 and 1 tokens: as if the outcomes were lower by 0.3, 0.2, 0.1.
    batch = CreditBatch(group=[0] * 3, turn_rewards=[[0.5, 1.0], [0.1], [0.0]], outcome=[1.0, 0.0, 0.5])
    penalised = replace(batch, reply_lengths=[[1, 2], [2], [1]], token_rewards=[[-0.1] * 3, [-0.1] * 2, [-0.1]])
    expected = replace(batch, outcome=[0.7, -0.2, 0.4])
    for name in ("grpo", "rloo"):
        assert close(estimate(name, penalised, rewards=rewards), estimate(name, expected, rewards=rewards))


def test_a_deviation_of_the_batch_is_one_divisor_for_all_groups() -> None:
    # outcomes 1, 0 | 5, 1 | 2, 2: mean 11/6, squared differences 25 + 121 + 361 + 25 + 1 + 1 = 534 over 36, over 5
    batch = CreditBatch(group=[0, 0, 1, 1, 2, 2], turn_rewards=[[0.0]] * 6, outcome=[1.0, 0.0, 5.0, 1.0, 2.0, 2.0])
    divisor = math.sqrt(534 / 36 / 5) + 1e-4
    found = estimate("grpo", batch, deviation="batch")
    assert close(found, [[value / divisor] for value in (0.5, -0.5, 2.0, -2.0, 0.0, 0.0)])
    alike = replace(batch, outcome=[2.0] * 6)
    assert estimate("grpo", alike, deviation="batch", epsilon=0.0).tolist() == [[0.0]] * 6


def test_tree_grpo_compares_the_branches_of_a_tree_and_the_whole_group() -> None:
    # Two trees of two and three branches: means 0.5 and 2, of the group 1.4.
    batch = CreditBatch(
        group=[4] * 5,
        turn_rewards=[[0.0], [0.0, 0.0], [1.0], [0.0], [0.0]],
        outcome=[0.0, 1.0, 0.0, 2.0, 3.0],
        trees=[0, 0, 1, 1, 1],
    )
    found = estimate("tree-grpo", batch, rewards="merged", deviation="none", within=2.0)
    assert close(found, [[-1.0 - 1.4], [1.0 - 0.4] * 2, [-2.0 - 0.4], [0.0 + 0.6], [2.0 + 1.6]])
    within = estimate("tree-grpo", batch, across=0.0, deviation="population", epsilon=0.0)
    # Outcomes of the second tree: 0, 2, 3, mean 5/3, squared differences 25/9, 1/9, 16/9.
    scale = math.sqrt(42 / 27)
    assert close(within, [[-1.0], [1.0] * 2, [-5 / 3 / scale], [1 / 3 / scale], [4 / 3 / scale]])


def test_trees_of_different_groups_are_never_compared_whatever_their_number() -> None:
    batch = CreditBatch(
        group=[0, 1, 0, 1, 2, 2], turn_rewards=[[0.0]] * 6, outcome=[0.0, 5.0, 2.0, 7.0, 9.0, 3.0], trees=[0] * 6
    )
    within = estimate("tree-grpo", batch, across=0.0, deviation="none")
    assert close(within, [[-1.0], [-1.0], [1.0], [1.0], [3.0], [-3.0]])


def test_a_tree_of_which_one_branch_is_left_has_nothing_within() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0]] * 2, outcome=[0.0, 2.0], trees=[0, 1])
    assert close(estimate("tree-grpo", batch, deviation="none"), [[-1.0], [1.0]])
