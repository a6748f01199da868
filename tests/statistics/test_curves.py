import pytest

from turnwise.statistics.curves import (
    AtEqualBudget,
    area,
    carried_forward,
    equal_budget,
    interpolated,
    reached,
    reached_at,
)

CURVE = [(0, 0.2), (10, 0.6), (30, 0.8)]


def test_the_area_under_a_curve_is_its_mean_on_the_way() -> None:
    # (0.2 + 0.6) / 2 * 10 + (0.6 + 0.8) / 2 * 20 = 18, over 30
    assert area(CURVE) == pytest.approx(0.6)
    assert area(CURVE[:1]) is None


def test_at_a_budget_a_run_is_on_the_straight_line_between_its_evaluations() -> None:
    # From 0.2 at 0 to 0.6 at 10, then to 0.8 at 30: half way 0.4, at 25 three quarters of the second step.
    assert [interpolated(CURVE, budget) for budget in (0, 5, 10, 25, 30)] == pytest.approx([0.2, 0.4, 0.6, 0.75, 0.8])


@pytest.mark.parametrize("budget", [-1, 30.001])
def test_nothing_is_said_beyond_a_curve(budget: float) -> None:
    with pytest.raises(ValueError, match=rf"must be within the curve; found {budget:g} for \[0, 10, 30\]"):
        interpolated(CURVE, budget)
    assert interpolated(carried_forward(CURVE, 40), 40) == 0.8


def test_runs_that_never_reached_the_stated_success_count_as_later_than_all_others() -> None:
    late, never = [(0, 0.1), (20, 0.7)], [(0, 0.1), (20, 0.3)]
    found = reached([CURVE, late, never], 0.6)
    assert found.at == (10, 20, None)
    assert found.median == 20
    assert (found.share.value, found.share.over, found.share.method) == (pytest.approx(2 / 3), "seeds", "Wilson")
    assert reached([never, never, CURVE], 0.6).median is None


def test_a_run_that_was_ended_keeps_its_last_value_for_the_area_under_its_curve() -> None:
    collapsed = [(0, 0.4), (10, 0.8), (20, 0.0)]
    # 0.6 * 10 + 0.4 * 10 = 10, over the 100 iterations that were planned; over its own 20 it would look like 0.5
    assert area(carried_forward(collapsed, 100)) == pytest.approx(0.1)
    assert area(collapsed) == pytest.approx(0.5)
    # 0.4 * 10 + 0.6 * 10 = 10, then 0.6 for the 80 that are left: 58 over 100
    assert area(carried_forward([(0, 0.2), (10, 0.6), (20, 0.6)], 100)) == pytest.approx((4 + 6 + 48) / 100)


def test_a_curve_that_goes_to_the_end_is_not_carried_further() -> None:
    assert carried_forward(CURVE, 30) == CURVE
    assert carried_forward([], 30) == []
    assert carried_forward(CURVE[:1], 30) == [(0, 0.2), (30, 0.2)]


def test_a_run_that_was_ended_before_the_threshold_counts_as_never_reaching_it() -> None:
    before, after = carried_forward([(0, 0.1), (5, 0.3)], 100), carried_forward([(0, 0.1), (5, 0.7), (6, 0.2)], 100)
    assert reached([before, after], 0.6).at == (None, 5)


def test_what_an_ended_run_has_spent_limits_no_budget() -> None:
    assert equal_budget([100, 90, 3], [False, False, True]) == 90
    assert equal_budget([100, 3], [False, False]) == 3
    assert equal_budget([7, 3], [True, True]) == 7


def test_points_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="must ascend"):
        area([(1, 0.1), (1, 0.2)])
    for refused in (reached_at, interpolated):
        with pytest.raises(ValueError, match=r"found \[2, 1\]"):
            refused([(2, 0.1), (1, 0.2)], 0.5)


def test_a_threshold_is_reached_at_the_first_evaluation_with_at_least_its_value() -> None:
    rising_and_falling = [(0, 0.2), (10, 0.6), (20, 0.5), (30, 0.8)]
    assert [reached_at(rising_and_falling, value) for value in (0.1, 0.2, 0.6, 0.61, 0.9)] == [0, 0, 10, 30, None]


def test_a_budget_is_headed_by_its_amount_and_unit() -> None:
    heading = {spent: AtEqualBudget("sampled_tokens", spent, {}).heading for spent in (1.0, 2.0, 12_345.6)}
    assert heading == {1.0: "1 sampled token", 2.0: "2 sampled tokens", 12_345.6: "12,346 sampled tokens"}
