"""Golden numbers for the credit rules, worked by hand, and the properties that hold for any batch."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit import ESTIMATORS, CreditBatch, estimate
from turnwise.errors import CreditError

# Four trajectories of one task: searched and right, searched and wrong, searched and right, answered at once and wrong.
#   turn sums 0.7, 0.2, 0.7, 0.0     mean 0.4, deviations 0.3, -0.2, 0.3, -0.4, squares sum 0.38
#   outcomes  1.5, 0.0, 1.5, 0.0     mean 0.75, deviations +-0.75, squares sum 2.25
GROUP = CreditBatch(
    group=[7, 7, 7, 7], turn_rewards=[[0.7, 0.0], [0.2, 0.0], [0.7, 0.0], [0.0]], outcome=[1.5, 0.0, 1.5, 0.0]
)
OUTCOME_DEVIATION = math.sqrt(2.25 / 3)  # 0.8660254
TURN_DEVIATION = math.sqrt(0.38 / 3)  # 0.3559026


def close(found: list[list[float]], expected: list[list[float]]) -> bool:
    return [pytest.approx(row, abs=1e-9) for row in expected] == found


def test_grpo_with_outcome_rewards_gives_every_turn_the_normalised_outcome() -> None:
    right = 0.75 / (OUTCOME_DEVIATION + 1e-4)  # 0.865925
    assert close(
        estimate("grpo", GROUP, rewards="outcome"), [[right, right], [-right, -right], [right, right], [-right]]
    )
    assert right == pytest.approx(0.865925, abs=1e-6)


def test_grpo_with_merged_rewards_normalises_the_sum() -> None:
    # sums 2.2, 0.2, 2.2, 0.0: mean 1.15, deviations 1.05, -0.95, 1.05, -1.15, squares sum 4.43
    divisor = math.sqrt(4.43 / 3) + 1e-4
    a, b, c = 1.05 / divisor, -0.95 / divisor, -1.15 / divisor
    assert close(estimate("grpo", GROUP, rewards="merged"), [[a, a], [b, b], [a, a], [c]])
    assert a == pytest.approx(0.86400, abs=1e-5)


def test_mt_grpo_gives_the_first_turn_both_terms_and_the_last_the_outcome() -> None:
    last = 0.75 / (OUTCOME_DEVIATION + 1e-4)
    turn = [deviation / (TURN_DEVIATION + 1e-4) for deviation in (0.3, -0.2, 0.3, -0.4)]
    expected = [[turn[0] + last, last], [turn[1] - last, -last], [turn[2] + last, last], [turn[3] - last]]
    assert close(estimate("mt-grpo", GROUP), expected)
    assert expected[0][0] == pytest.approx(0.842689 + 0.865925, abs=2e-4)


def test_the_coefficient_of_mt_grpo_stands_on_the_outcome_of_the_first_turn() -> None:
    once, half = estimate("mt-grpo", GROUP), estimate("mt-grpo", GROUP, outcome_coefficient=0.5)
    outcome = estimate("grpo", GROUP, rewards="outcome")
    for full, halved, alone in zip(once, half, outcome, strict=True):
        assert halved[0] == pytest.approx(full[0] - 0.5 * alone[0])
        assert halved[1:] == full[1:]


def test_return_to_go_leaves_the_trajectory_itself_out_of_its_baseline() -> None:
    # turn 1: returns 2.2, 0.2, 2.2, 0.0 (sum 4.6): 2.2 - 2.4/3, 0.2 - 4.4/3, 0.0 - 4.6/3
    # turn 2: returns 1.5, 0.0, 1.5 among the three that reach it: 1.5 - 0.75, 0 - 1.5
    expected = [[1.4, 0.75], [0.2 - 4.4 / 3, -1.5], [1.4, 0.75], [-4.6 / 3]]
    assert close(estimate("mt-grpo", GROUP, rule="return-to-go"), expected)


def test_return_to_go_keeps_the_raw_return_of_a_trajectory_that_is_alone_at_its_turn() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0, 0.5], [0.2]], outcome=[1.0, 0.0])
    with pytest.warns(UserWarning, match="alone at its turn"):
        advantages = estimate("mt-grpo", batch, rule="return-to-go")
    assert close(advantages, [[1.5 - 0.2, 1.5], [0.2 - 1.5]])


def test_one_success_in_a_group_of_eight_is_2_475_unbiased_and_2_646_population() -> None:
    batch = CreditBatch(group=[0] * 8, turn_rewards=[[0.0]] * 8, outcome=[1.0] + [0.0] * 7)
    unbiased = estimate("grpo", batch, epsilon=0.0)  # (7/8) / sqrt((7/8)/7) = (7/8) * sqrt(8)
    population = estimate("grpo", batch, deviation="population", epsilon=0.0)  # (7/8) / sqrt(7/64) = sqrt(7)
    assert unbiased[0][0] == pytest.approx(2.475, abs=5e-4)
    assert population[0][0] == pytest.approx(math.sqrt(7))


def test_no_deviation_leaves_the_scale_of_the_rewards() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[3.0, 1.0])
    assert estimate("grpo", batch, deviation="none") == [[1.0], [-1.0]]


def test_an_all_equal_group_has_no_signal() -> None:
    batch = CreditBatch(group=[0] * 3, turn_rewards=[[0.1, 0.2]] * 3, outcome=[0.3] * 3)
    for rewards in ("outcome", "merged"):
        assert estimate("grpo", batch, rewards=rewards, epsilon=0.0) == [[0.0, 0.0]] * 3


def test_a_group_of_one_gets_zero_and_a_warning() -> None:
    batch = CreditBatch(group=[0], turn_rewards=[[0.0]], outcome=[1.0])
    with pytest.warns(UserWarning, match="no baseline"):
        assert estimate("grpo", batch) == [[0.0]]


def test_the_paper_rule_refuses_three_turns() -> None:
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0] * 3, [0.0]], outcome=[1.0, 0.0])
    with pytest.raises(CreditError, match="at most two turns; found a trajectory of 3"):
        estimate("mt-grpo", batch)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grppo", {}, "must be one of grpo, mt-grpo; found 'grppo'"),
        ("grpo", {"epsilom": 1.0}, "options of 'grpo' are .*; found 'epsilom'"),
        ("grpo", {"rewards": "both"}, "rewards must be one of outcome, merged"),
        ("mt-grpo", {"rule": "papers"}, "rule must be one of"),
        ("grpo", {"deviation": "biased"}, "deviation must be one of"),
        ("grpo", {"epsilon": -1.0}, "epsilon must be at least 0"),
    ],
)
def test_an_unknown_name_or_option_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(CreditError, match=message):
        estimate(name, GROUP, **options)


def test_entries_that_do_not_match_are_refused() -> None:
    with pytest.raises(CreditError, match="one entry per trajectory"):
        CreditBatch(group=[0, 0], turn_rewards=[[0.0]], outcome=[1.0, 0.0])
    with pytest.raises(CreditError, match="trajectory 1 has none"):
        CreditBatch(group=[0, 0], turn_rewards=[[0.0], []], outcome=[1.0, 0.0])


finite = st.floats(-5, 5).map(lambda value: round(value, 3))
batches = st.lists(
    st.tuples(st.integers(0, 2), st.lists(finite, min_size=1, max_size=2), finite), min_size=2, max_size=12
).map(
    lambda rows: CreditBatch(
        group=[r[0] for r in rows], turn_rewards=[r[1] for r in rows], outcome=[r[2] for r in rows]
    )
)
RULES = [
    ("grpo", {"rewards": "outcome"}),
    ("grpo", {"rewards": "merged"}),
    ("mt-grpo", {"rule": "paper"}),
    ("mt-grpo", {"rule": "return-to-go"}),
]


def test_every_estimator_is_among_the_rules_whose_properties_are_tested() -> None:
    assert {name for name, _ in RULES} == set(ESTIMATORS)


@pytest.mark.filterwarnings("ignore:a group of one", "ignore:a trajectory that is alone")
@pytest.mark.parametrize(("name", "options"), RULES)
@given(batch=batches, data=st.data())
def test_permuting_trajectories_permutes_advantages(
    name: str, options: dict[str, str], batch: CreditBatch, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = CreditBatch(
        group=[batch.group[i] for i in order],
        turn_rewards=[batch.turn_rewards[i] for i in order],
        outcome=[batch.outcome[i] for i in order],
    )
    expected = estimate(name, batch, **options)
    found = estimate(name, shuffled, **options)
    assert all(found[new] == pytest.approx(expected[old], abs=1e-6) for new, old in enumerate(order))


@pytest.mark.filterwarnings("ignore:a group of one", "ignore:a trajectory that is alone")
@given(batch=batches)
def test_group_relative_advantages_sum_to_zero_over_a_group(batch: CreditBatch) -> None:
    advantages = estimate("grpo", batch, rewards="merged")
    for members in batch.members.values():
        assert math.fsum(advantages[index][0] for index in members) == pytest.approx(0.0, abs=1e-6)
