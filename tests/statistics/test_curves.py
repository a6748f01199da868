import pytest

from turnwise.statistics.curves import AtEqualBudget, area, reached, reached_at, within_budget

CURVE = [(0, 0.2), (10, 0.6), (30, 0.8)]


def test_the_area_under_a_curve_is_its_mean_on_the_way() -> None:
    # (0.2 + 0.6) / 2 * 10 + (0.6 + 0.8) / 2 * 20 = 18, over 30
    assert area(CURVE) == pytest.approx(0.6)
    assert area(CURVE[:1]) is None


def test_a_budget_buys_the_last_evaluation_that_it_pays_for() -> None:
    assert [within_budget(CURVE, budget) for budget in (-1, 0, 9.9, 10, 100)] == [None, 0.2, 0.2, 0.6, 0.8]


def test_runs_that_never_reached_the_stated_success_count_as_later_than_all_others() -> None:
    late, never = [(0, 0.1), (20, 0.7)], [(0, 0.1), (20, 0.3)]
    found = reached([CURVE, late, never], 0.6)
    assert found.at == (10, 20, None)
    assert found.median == 20
    assert (found.share.value, found.share.over, found.share.method) == (pytest.approx(2 / 3), "seeds", "Wilson")
    assert reached([never, never, CURVE], 0.6).median is None


def test_points_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="must ascend"):
        area([(1, 0.1), (1, 0.2)])
    for refused in (reached_at, within_budget):
        with pytest.raises(ValueError, match=r"found \[2, 1\]"):
            refused([(2, 0.1), (1, 0.2)], 0.5)


def test_a_threshold_is_reached_at_the_first_evaluation_with_at_least_its_value() -> None:
    rising_and_falling = [(0, 0.2), (10, 0.6), (20, 0.5), (30, 0.8)]
    assert [reached_at(rising_and_falling, value) for value in (0.1, 0.2, 0.6, 0.61, 0.9)] == [0, 0, 10, 30, None]


def test_a_budget_is_headed_by_its_amount_and_unit() -> None:
    heading = {spent: AtEqualBudget("tokens", spent, {}).heading for spent in (1.0, 2.0, 12_345.6)}
    assert heading == {1.0: "1 token", 2.0: "2 tokens", 12_345.6: "12,346 tokens"}
