"""Which guard ends a run, and when."""

from __future__ import annotations

from turnwise.config.monitoring import Guards
from turnwise.health.guards import reached_guard

NONE = {"no_signal": 0, "zero_variance_groups": 0, "truncated_replies": 0}
GUARDS = Guards(no_signal=10, zero_variance_groups=3, truncated_replies=None)


def test_a_guard_ends_a_run_once_its_condition_has_held_often_enough() -> None:
    assert reached_guard(NONE, GUARDS) is None
    assert reached_guard({**NONE, "zero_variance_groups": 2}, GUARDS) is None
    assert reached_guard({**NONE, "zero_variance_groups": 3}, GUARDS) == "zero_variance_groups"


def test_a_guard_without_a_number_ends_nothing() -> None:
    assert reached_guard({**NONE, "truncated_replies": 1000}, GUARDS) is None


def test_of_several_guards_the_first_is_named() -> None:
    assert reached_guard({"no_signal": 10, "zero_variance_groups": 10, "truncated_replies": 10}, GUARDS) == "no_signal"
