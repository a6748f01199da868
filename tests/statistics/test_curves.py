import numpy as np
import pytest

from turnwise.statistics.curves import area, reached, within_budget
from turnwise.statistics.profiles import performance_profile
from turnwise.statistics.reference_policies import normalised
from turnwise.statistics.seeds import student_over_seeds

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


def test_a_profile_worked_by_hand() -> None:
    # Seed 1: 0.2, 0.4, 0.6, 0.8; seed 2: 0.6, 0.6, 0.8, 1. Above 0.5: 1/2 and 1; above 0.6: 1/4 and 1/2.
    scores = np.array([[0.2, 0.4, 0.6, 0.8], [0.6, 0.6, 0.8, 1.0]])
    profile = performance_profile(scores, [0.1, 0.5, 0.6, 1.0])
    assert [point.value for point in profile] == pytest.approx([1.0, 0.75, 0.375, 0.0])
    assert profile[1].sample == (0.5, 1.0)
    assert all(0 <= point.low <= point.high <= 1 for point in profile if point.low is not None)
    with pytest.raises(ValueError, match=r"\[seeds, tasks\]"):
        performance_profile(np.ones(3), [0.5])


def test_a_normalised_score_lies_between_random_and_oracle() -> None:
    # (0.6 - 0.2) / (1 - 0.2); bounds and seeds alike
    score = student_over_seeds([0.5, 0.7], within=(0.0, 1.0))
    found = normalised(score, random=0.2, oracle=1.0)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, -0.25, 1.0))
    assert found.sample == pytest.approx((0.375, 0.625))
    assert normalised(score, random=0.5, oracle=0.5) is None
