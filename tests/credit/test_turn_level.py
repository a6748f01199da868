"""The rules of MT-GRPO, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import SEARCHES, UNEQUAL, close

from turnwise.credit import CreditBatch, estimate
from turnwise.errors import CreditError

OUTCOME_DEVIATION = math.sqrt(2.25 / 3)  # of SEARCHES, unbiased: 0.8660254
TURN_DEVIATION = math.sqrt(0.38 / 3)  # 0.3559026


def test_the_paper_gives_the_first_turn_both_terms_and_the_last_the_outcome() -> None:
    last = 0.75 / (OUTCOME_DEVIATION + 1e-4)
    turn = [deviation / (TURN_DEVIATION + 1e-4) for deviation in (0.3, -0.2, 0.3, -0.4)]
    expected = [[turn[0] + last, last], [turn[1] - last, -last], [turn[2] + last, last], [turn[3] - last]]
    assert close(estimate("mt-grpo", SEARCHES, rule="paper"), expected)
    assert expected[0][0] == pytest.approx(0.842689 + 0.865925, abs=2e-4)


def test_the_coefficients_of_the_paper_stand_on_the_terms_of_the_first_turn() -> None:
    once = estimate("mt-grpo", SEARCHES, rule="paper")
    outcome = estimate("grpo", SEARCHES)
    less_outcome = estimate("mt-grpo", SEARCHES, rule="paper", outcome_coefficient=0.5)
    less_turn = estimate("mt-grpo", SEARCHES, rule="paper", turn_coefficient=0.5)
    for full, of_outcome, of_turn, alone in zip(once, less_outcome, less_turn, outcome, strict=True):
        assert of_outcome[0] == pytest.approx(full[0] - 0.5 * alone[0])
        assert of_turn[0] == pytest.approx(full[0] - 0.5 * (full[0] - alone[0]))
        assert of_outcome[1:].tolist() == of_turn[1:].tolist() == full[1:].tolist()


def test_the_paper_refuses_three_turns_and_names_the_rule_that_has_them() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0] * 3, [0.0]], outcome=[1.0, 0.0])
    with pytest.raises(CreditError, match=r"\b3\b.*TW-too-many-turns"):
        estimate("mt-grpo", batch, rule="paper")


def test_per_index_normalises_among_the_trajectories_that_reach_the_turn() -> None:
    # turn 1: 0.5, 0.1, 0.0 (mean 0.2): 0.3, -0.1, -0.2;  turn 2: 1.0, 0.2 (mean 0.6): 0.4, -0.4
    # outcome 1, 0, 0.5 (mean 0.5): 0.5, -0.5, 0
    to_go = [[0.3 + 0.4 + 0.5, 0.4 + 0.5], [-0.1 - 0.4 - 0.5, -0.4 - 0.5], [-0.2]]
    own = [[0.3 + 0.5, 0.4 + 0.5], [-0.1 - 0.5, -0.4 - 0.5], [-0.2]]
    assert close(estimate("mt-grpo", UNEQUAL, rule="per-index", deviation="none"), to_go)
    assert close(estimate("mt-grpo", UNEQUAL, rule="per-index", deviation="none", to_go=False), own)


def test_per_index_divides_each_turn_by_its_own_deviation() -> None:
    # turn 1: squares 0.09 + 0.01 + 0.04 = 0.14, over 2; turn 2: 0.16 + 0.16 over 1; outcome: 0.25 + 0.25 over 2
    first, second, outcome = 0.3 / math.sqrt(0.07), 0.4 / math.sqrt(0.32), 0.5 / math.sqrt(0.25)
    found = estimate("mt-grpo", UNEQUAL, rule="per-index", epsilon=0.0)
    assert found[0] == pytest.approx([first + second + outcome, second + outcome])
    assert found[0] == pytest.approx([1.133893 + 0.707107 + 1.0, 0.707107 + 1.0], abs=1e-6)


def test_padded_counts_an_absent_turn_as_zero() -> None:
    # turn 2: 1.0, 0.2, 0.0 (mean 0.4): 0.6, -0.2, -0.4, of which the last is on the one turn that there is
    to_go = [[0.3 + 0.6 + 0.5, 0.6 + 0.5], [-0.1 - 0.2 - 0.5, -0.2 - 0.5], [-0.2 - 0.4]]
    own = [[0.3 + 0.5, 0.6 + 0.5], [-0.1 - 0.5, -0.2 - 0.5], [-0.2]]
    assert close(estimate("mt-grpo", UNEQUAL, rule="padded", deviation="none"), to_go)
    assert close(estimate("mt-grpo", UNEQUAL, rule="padded", deviation="none", to_go=False), own)


def test_return_to_go_leaves_the_trajectory_itself_out_of_its_baseline() -> None:
    # turn 1: returns 2.2, 0.2, 2.2, 0.0 (sum 4.6): 2.2 - 2.4/3, 0.2 - 4.4/3, 0.0 - 4.6/3
    # turn 2: returns 1.5, 0.0, 1.5 among the three that reach it: 1.5 - 0.75, 0 - 1.5
    expected = [[1.4, 0.75], [0.2 - 4.4 / 3, -1.5], [1.4, 0.75], [-4.6 / 3]]
    assert close(estimate("mt-grpo", SEARCHES, rule="return-to-go"), expected)


def test_return_to_go_can_include_the_trajectory_itself() -> None:
    # turn 1: 2.5, 0.3, 0.5 (mean 1.1); turn 2: 2.0, 0.2 (mean 1.1)
    found = estimate("mt-grpo", UNEQUAL, rule="return-to-go", baseline="group")
    assert close(found, [[1.4, 0.9], [-0.8, -0.9], [-0.6]])


def test_return_to_go_keeps_the_raw_return_of_a_trajectory_that_is_alone_at_its_turn() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0, 0.5], [0.2]], outcome=[1.0, 0.0])
    with pytest.warns(UserWarning, match="alone at its turn"):
        advantages = estimate("mt-grpo", batch, rule="return-to-go")
    assert close(advantages, [[1.5 - 0.2, 1.5], [0.2 - 1.5]])


def test_a_deviation_divides_the_returns_of_each_turn_by_their_own_spread() -> None:
    # turn 1: 2.5, 0.3, 0.5: squares 1.96 + 0.64 + 0.36 = 2.96 over 2; turn 2: 2.0, 0.2: 0.81 + 0.81 over 1
    first, second = math.sqrt(2.96 / 2), math.sqrt(1.62)
    expected = [[2.1 / first, 1.8 / second], [-1.2 / first, -1.8 / second], [-0.9 / first]]
    found = estimate("mt-grpo", UNEQUAL, rule="return-to-go", deviation="unbiased", epsilon=0.0)
    assert close(found, expected)


@pytest.mark.parametrize("rule", ["per-index", "padded", "return-to-go"])
def test_the_coefficients_weigh_turn_rewards_and_outcomes(rule: str) -> None:
    weighed = replace(
        UNEQUAL,
        turn_rewards=[[2.0 * reward for reward in row] for row in UNEQUAL.turn_rewards],
        outcome=[0.5 * outcome for outcome in UNEQUAL.outcome],
    )
    options = {"rule": rule, "deviation": "none"}
    found = estimate("mt-grpo", UNEQUAL, turn_coefficient=2.0, outcome_coefficient=0.5, **options)
    assert close(found, estimate("mt-grpo", weighed, **options))


@pytest.mark.parametrize("rule", ["paper", "per-index", "padded", "return-to-go"])
def test_an_all_equal_group_has_no_signal_at_all(rule: str) -> None:
    batch = CreditBatch(group=[0] * 3, turn_rewards=[[0.1, 0.2]] * 3, outcome=[0.3] * 3)
    assert estimate("mt-grpo", batch, rule=rule, epsilon=0.0).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("rule", ["per-index", "padded", "return-to-go"])
def test_rewards_per_token_count_in_the_reward_of_their_turn(rule: str) -> None:
    penalised = replace(
        UNEQUAL,
        reply_lengths=[[1, 2], [1, 1], [2]],
        token_rewards=[[-0.1, -0.2, -0.2], [0.0, -0.1], [-0.3, 0.1]],
    )
    expected = replace(UNEQUAL, turn_rewards=[[0.4, 0.6], [0.1, 0.1], [-0.2]])
    assert close(estimate("mt-grpo", penalised, rule=rule), estimate("mt-grpo", expected, rule=rule))


def test_the_paper_has_no_place_for_rewards_per_token() -> None:
    batch = replace(SEARCHES, reply_lengths=[[1, 1]] * 3 + [[1]], token_rewards=[[0.0, 0.0]] * 3 + [[0.0]])
    with pytest.raises(CreditError, match="TW-no-token-rewards"):
        estimate("mt-grpo", batch, rule="paper")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "paper", "to_go": True}, "to_go.*per-index.*TW-unread-option"),
        ({"rule": "return-to-go", "to_go": False}, "to_go.*TW-unread-option"),
        ({"rule": "padded", "baseline": "others"}, "baseline.*return-to-go.*TW-unread-option"),
        ({"rule": "return-to-go", "baseline": "mean"}, "baseline.*TW-unknown-choice"),
        ({"rule": "padded", "to_go": 1}, r"to_go.*\b1\b.*TW-option-type"),
    ],
)
def test_an_option_that_the_rule_does_not_have_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(CreditError, match=message):
        estimate("mt-grpo", UNEQUAL, **options)
