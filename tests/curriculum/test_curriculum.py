"""The horizon: pure, bounded and never shrinking; the published schedules; and when an adaptive limit grows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from turnwise.curriculum.plateau import IterationCounts, has_levelled_off, standard_error
from turnwise.curriculum.rules import SCHEDULES, Curriculum, HorizonState, Staged, make_curriculum
from turnwise.errors import ConfigurationError

TURNS = 40


def limits(curriculum: Curriculum, batches: list[IterationCounts]) -> list[int]:
    """The limit of each iteration, of which each has one of the batches, and of the one after."""
    states = [curriculum.first_at(1)]
    for iteration, batch in enumerate(batches, start=1):
        states.append(curriculum.next(states[-1], iteration, batch))
    return [state.limit for state in states]


def batches(*successes: int, episodes: int = 8, at_limit: int = 8) -> list[IterationCounts]:
    return [IterationCounts(episodes, each, min(at_limit, episodes - each)) for each in successes]


@some.composite
def played(draw: Any) -> list[IterationCounts]:
    found = []
    for _ in range(draw(some.integers(0, 30))):
        episodes = draw(some.integers(0, 20))
        successes = draw(some.integers(0, episodes))
        found.append(IterationCounts(episodes, successes, draw(some.integers(0, episodes - successes))))
    return found


growing = some.lists(some.integers(1, TURNS), min_size=2, max_size=6, unique=True).map(sorted)
curricula = some.one_of(
    some.integers(1, TURNS).map(lambda limit: make_curriculum("fixed", {"limit": limit}, TURNS)),
    growing.map(lambda chosen: make_curriculum("staged", {"limits": chosen, "lengths": 3}, TURNS)),
    some.builds(
        lambda first, further, step, window: make_curriculum(
            "adaptive", {"first": first, "maximum": first + further, "step": step, "window": window}, TURNS
        ),
        some.integers(1, 20),
        some.integers(1, 20),
        some.integers(1, 9),
        some.integers(2, 4),
    ),
)


@given(curricula, played())
def test_a_limit_never_shrinks_and_stays_within_its_bounds(
    curriculum: Curriculum, episodes: list[IterationCounts]
) -> None:
    found = limits(curriculum, episodes)
    assert all(earlier <= later for earlier, later in pairwise(found))
    assert found[0] == curriculum.shortest and found[-1] <= curriculum.longest


@given(curricula, played(), played())
def test_a_limit_is_a_function_of_the_state_and_the_episodes_alone(
    curriculum: Curriculum, before: list[IterationCounts], after: list[IterationCounts]
) -> None:
    state = curriculum.first_at(1)
    for iteration, batch in enumerate(before, start=1):
        state = curriculum.next(state, iteration, batch)
    resumed = HorizonState(state.limit, tuple(state.batches))
    for iteration, batch in enumerate(after, start=len(before) + 1):
        resumed = curriculum.next(resumed, iteration, batch)
    assert limits(curriculum, before + after)[-1] == resumed.limit


@given(growing, some.lists(some.integers(1, 9), min_size=5, max_size=5), played(), played())
def test_a_staged_limit_is_a_function_of_the_iteration_alone(
    chosen: list[int], lengths: list[int], one: list[IterationCounts], other: list[IterationCounts]
) -> None:
    curriculum = make_curriculum("staged", {"limits": chosen, "lengths": lengths[: len(chosen) - 1]}, TURNS)
    shared = min(len(one), len(other)) + 1
    assert limits(curriculum, one)[:shared] == limits(curriculum, other)[:shared]


def test_the_published_numbers_are_those_of_agentgym_rl() -> None:
    # arXiv 2509.08755: limits in turns, and steps of each stage but the last.
    assert SCHEDULES == {
        "webarena": ((8, 12, 15), 80),
        "search": ((5, 8, 10), 100),
        "textcraft": ((10, 20, 30), 100),
        "babyai": ((6, 13, 20), 100),
        "sciworld": ((10, 20, 30), 100),
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_published_schedules_are_the_released_formula(schedule: str) -> None:
    chosen, period = SCHEDULES[schedule]
    curriculum = make_curriculum("staged", {"schedule": schedule}, TURNS)
    assert isinstance(curriculum, Staged)
    for step in range(1, 4 * period):
        assert curriculum.first_at(step).limit == chosen[min((step - 1) // period, len(chosen) - 1)]


def test_babyai_as_published_and_with_shorter_stages() -> None:
    published = make_curriculum("staged", {"schedule": "babyai"}, 20)
    assert isinstance(published, Staged)
    assert [published.first_at(step).limit for step in (1, 100, 101, 200, 201, 999)] == [6, 6, 13, 13, 20, 20]
    shortened = make_curriculum("staged", {"schedule": "babyai", "lengths": [1, 2]}, 20)
    assert limits(shortened, batches(0, 0, 0, 0)) == [6, 13, 13, 20, 20]


def test_a_limit_ahead_of_all_results_is_the_first_or_that_of_the_schedule() -> None:
    staged = make_curriculum("staged", {"limits": [6, 13, 20], "lengths": [1, 2]}, 20)
    assert [staged.first_at(iteration).limit for iteration in (1, 2, 3, 4)] == [6, 13, 13, 20]
    assert [adaptive().first_at(iteration) for iteration in (1, 2)] == [adaptive().first_at(1)] * 2


# Levelling off, worked by hand: two windows of two iterations of 8 episodes each.


def test_the_standard_error_is_the_larger_of_the_spread_and_the_binomial_one() -> None:
    # Spread: 1/8 and 3/8 vary by 1/32, 4/8 and 4/8 not at all: (1/32 + 0) / 2 = 1/64. Binomial: 12 of 32 solved,
    # p = 13/34, p (1 - p) (1/16 + 1/16) = 0.029520: the larger. Its root is 0.171814.
    assert standard_error(batches(1, 3), batches(4, 4)) == pytest.approx(0.171814, abs=1e-6)
    # 0 and 8 of 8 vary by 1/2, twice: (1/2 + 1/2) / 2 = 1/2 is above the binomial 1/4 x 1/8.
    assert standard_error(batches(0, 8), batches(8, 0)) == pytest.approx(0.5**0.5)


def test_success_is_level_when_a_gain_above_the_tolerance_can_be_ruled_out() -> None:
    earlier, recent = batches(2, 4), batches(4, 4)
    # The gain is 4/8 - 3/8 = 0.125; 14 of 32 solved: p = 15/34, the binomial error 0.175549, that of the spread 0.125.
    assert has_levelled_off(earlier, recent, tolerance=0.301, standard_errors=1.0)
    assert not has_levelled_off(earlier, recent, tolerance=0.300, standard_errors=1.0)
    assert has_levelled_off(earlier, recent, tolerance=0.125, standard_errors=0.0)


def adaptive(**options: Any) -> Curriculum:
    return make_curriculum(
        "adaptive", {"first": 2, "step": 3, "window": 2, "tolerance": 0.2, "standard_errors": 1.0, **options}, 6
    )


def test_an_adaptive_limit_grows_where_level_success_meets_episodes_cut_off_and_begins_its_windows_anew() -> None:
    # Nothing solved, all cut off: p = 1/34, e = 0.0597 <= 0.2, so that the second window ends the wait at iteration 4.
    # From 5 turns it grows after four more to 6, the maximum, and stays.
    assert limits(adaptive(), batches(*[0] * 12)) == [2, 2, 2, 2, 5, 5, 5, 5, 6, 6, 6, 6, 6]


def test_an_adaptive_limit_waits_while_success_rises() -> None:
    # 0, 2, 4, 6 of 8: a gain of 0.5 in two iterations.
    assert limits(adaptive(), batches(0, 2, 4, 6)) == [2] * 5


def test_an_adaptive_limit_waits_while_episodes_end_before_it() -> None:
    # A fifth of the recent window's 16 episodes is 3.2: with 3 cut off it waits, with 4 it grows.
    assert limits(adaptive(), batches(0, 0, 0, 0, at_limit=1))[-1] == 2
    assert limits(adaptive(), [*batches(0, 0, 0, at_limit=2), IterationCounts(8, 0, 1)])[-1] == 2
    assert limits(adaptive(), batches(0, 0, 0, 0, at_limit=2))[-1] == 5
    assert limits(adaptive(share=0.25), batches(0, 0, 0, 0, at_limit=2))[-1] == 5, "just as many as are asked for"


def test_an_adaptive_limit_waits_where_few_episodes_say_little() -> None:
    # Half is solved throughout. Of 8 episodes each, e = 0.1768 is within the tolerance of 0.2; of 2 each it is 0.3536.
    assert limits(adaptive(), batches(4, 4, 4, 4))[-1] == 5
    assert limits(adaptive(), batches(*[1] * 4, episodes=2))[-1] == 2


def test_an_iteration_without_episodes_says_nothing() -> None:
    assert limits(adaptive(), [*batches(0, 0, 0), IterationCounts(0, 0, 0)]) == [2, 2, 2, 2, 2]


# What is refused


def refused(rule: str, options: dict[str, Any], turns: int = 10) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make_curriculum(rule, options, turns)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rule", "options", "expected"),
    [
        ("stage", {}, "curriculum.rule must be one of fixed, staged, adaptive; found 'stage'"),
        ("fixed", {"limits": [3]}, "curriculum.options: the options of 'fixed' are limit; found 'limits'"),
        ("fixed", {"limit": 0}, "curriculum.options: limit must be at least 1; found 0"),
        ("fixed", {"limit": 11}, "which allows 10 turns; found 11"),
        ("staged", {"limits": [2, 4, 11], "lengths": 3}, "which allows 10 turns; found 11"),
        ("staged", {"schedule": "textcraft"}, "which allows 10 turns; found 30"),
        ("staged", {"limits": [2, 4, 4], "lengths": 3}, "must grow from stage to stage"),
        ("staged", {"limits": [4], "lengths": 3}, "with two stages at least"),
        ("staged", {"limits": [2, 4], "lengths": [3, 3]}, "found 2 limits and the lengths [3, 3]"),
        ("staged", {"limits": [2, 4], "lengths": 0}, "lengths must be a number of iterations of at least 1, or a list"),
        ("staged", {"limits": [2, 4, 6], "lengths": [3, 0]}, "lengths must be a number of iterations of at least 1"),
        ("staged", {"limits": [2, 4, 6], "lengths": [True, 3]}, "lengths must be a number of iterations of at least 1"),
        ("staged", {"limits": [2, 4]}, "one for each stage but the last; found None"),
        ("staged", {"limits": [2, 4], "schedule": "babyai"}, "either limits of its own or a published schedule"),
        ("staged", {"schedule": "baby"}, "schedule must be one of webarena, search"),
        ("staged", {"limits": "2, 4", "lengths": 3}, "limits must be a list; found '2, 4'"),
        ("adaptive", {}, "curriculum.options: first must be set; found nothing"),
        ("adaptive", {"first": 10}, "must begin below its maximum"),
        ("adaptive", {"first": 2, "maximum": 12}, "which allows 10 turns; found 12"),
        ("adaptive", {"first": 2, "window": 1}, "window must be at least 2: one value has no spread; found 1"),
        ("adaptive", {"first": 2, "tolerance": 0}, "tolerance must be above 0; found 0"),
        ("adaptive", {"first": 2, "share": 0.0}, "share must be above 0; found 0.0"),
    ],
)
def test_a_curriculum_that_makes_no_sense_is_refused(rule: str, options: dict[str, Any], expected: str) -> None:
    assert expected in refused(rule, options)


def test_stages_that_are_never_reached_and_windows_that_never_fill_are_refused() -> None:
    staged = make_curriculum("staged", {"limits": [2, 4], "lengths": 5}, 10)
    staged.require_iterations(6)
    with pytest.raises(ConfigurationError, match=r"\b5\b.*TW-curriculum-unreached"):
        staged.require_iterations(5)
    adaptive().require_iterations(5)
    with pytest.raises(ConfigurationError, match=r"\b2\b.*\b4\b.*TW-curriculum-unreached"):
        adaptive().require_iterations(4)
