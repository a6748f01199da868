from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.statistics.group_spread import SpreadShare, chance_of_spread, expected_spread


def test_the_chance_of_spread_worked_by_hand() -> None:
    # p = 1/2, n = 3: 1 - 1/8 - 1/8. p = 1/4, n = 2: 1 - 1/16 - 9/16. Three values alike often, n = 2: 1 - 3/9.
    assert chance_of_spread((0.5, 0.5), 3) == 0.75
    assert chance_of_spread((0.25, 0.75), 2) == 0.375
    assert chance_of_spread((1 / 3, 1 / 3, 1 / 3), 2) == pytest.approx(2 / 3)
    assert chance_of_spread((0.0, 1.0), 8) == chance_of_spread((1.0,), 8) == 0.0


def test_the_estimate_worked_by_hand() -> None:
    # One success in four: of the six pairs three hold it; every group of four does. The other task never differs.
    assert expected_spread([[1.0, 0.0, 0.0, 0.0], [0.0] * 4], 2) == SpreadShare(0.25, 0.25)
    assert expected_spread([[1.0, 0.0, 0.0, 0.0], [0.0] * 4], 4) == SpreadShare(0.5, 0.5)
    # Three values, 2 1 1: of the six pairs one is alike.
    assert expected_spread([[0.3, 0.3, 1.0, 0.0]], 2).least == pytest.approx(5 / 6)


def test_groups_that_are_larger_than_what_was_played_are_bounded() -> None:
    # 1 of 8 tasks differs among 3 episodes; groups of 5 differ at least as often, at most (5 - 1) / (3 - 1) as often.
    rewards = [[0.0, 1.0, 0.0], *[[0.0] * 3] * 7]
    assert expected_spread(rewards, 5) == SpreadShare(0.125, 0.25)
    assert expected_spread(rewards[:1], 5) == SpreadShare(1.0, 1.0)
    assert expected_spread([[0.0] * 3] * 8, 5) == SpreadShare(0.0, 0.0)


def test_tasks_that_were_played_once_bound_the_spread_from_above() -> None:
    # p = 1/4 in every task at best: 1 - 1/16 - 9/16. Where another task was played twice, it alone is asked.
    assert expected_spread([[1.0], [0.0], [0.0], [0.0]], 2) == SpreadShare(0.0, 0.375)
    assert expected_spread([[1.0], [0.0], [0.0, 0.0]], 2) == SpreadShare(0.0, 0.0)
    assert expected_spread([[0.0]] * 9, 8) == SpreadShare(0.0, 0.0)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.data())
def test_the_estimate_is_the_share_of_subsets_that_are_not_alike(rewards: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(2, len(rewards)))
    subsets = list(combinations(rewards, size))
    found = expected_spread([rewards], size)
    assert found.least == found.most == pytest.approx(sum(len(set(each)) > 1 for each in subsets) / len(subsets))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any), st.integers(2, 6), st.integers(0, 10))
def test_a_larger_group_differs_more_often_but_not_in_proportion(weights: list[int], played: int, more: int) -> None:
    shares = [weight / sum(weights) for weight in weights]
    of_played, of_more = chance_of_spread(shares, played), chance_of_spread(shares, played + more)
    assert of_played <= of_more + 1e-12
    assert of_more <= of_played * (played + more - 1) / (played - 1) + 1e-12


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), st.integers(2, 12))
def test_tasks_that_are_alike_are_the_best_case(successes: list[float], size: int) -> None:
    mean = sum(successes) / len(successes)
    of_tasks = [chance_of_spread((success, 1 - success), size) for success in successes]
    assert sum(of_tasks) / len(of_tasks) <= chance_of_spread((mean, 1 - mean), size) + 1e-12


def test_a_group_of_one_and_no_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2; found a size of 1"):
        expected_spread([[0.0, 1.0]], 1)
    with pytest.raises(ValueError, match="at least 2; found a size of 1"):
        chance_of_spread((1.0,), 1)
    with pytest.raises(ValueError, match="found none"):
        expected_spread([[]], 2)
