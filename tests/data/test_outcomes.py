"""How the end of a run is said."""

from __future__ import annotations

from pydantic import TypeAdapter

from turnwise.data.outcomes import EarlyEnd, LeftOut


def test_an_early_end_says_when_and_by_what() -> None:
    by_guard = EarlyEnd(iteration=31, planned=100, cause="guard", by=("zero_variance_groups",), message="...")
    assert (by_guard.when, by_guard.reason) == ("iteration 31 of 100", "zero_variance_groups")
    by_alarm = EarlyEnd(iteration=3, planned=9, cause="alarm", by=("entropy", "success"), message="...")
    assert by_alarm.reason == "the alarm on entropy and success"


def test_the_outcomes_of_a_run_are_read_back_as_they_were_written() -> None:
    ended = EarlyEnd(iteration=3, planned=9, cause="alarm", by=("entropy", "success"), message="...")
    assert EarlyEnd.model_validate_json(ended.model_dump_json()) == ended
    left_out = LeftOut(variant="base", seed=2, by="mismatch", message="...")
    as_json = TypeAdapter(LeftOut)
    assert as_json.validate_json(as_json.dump_json(left_out)) == left_out
    assert left_out.name == "base seed 2"
