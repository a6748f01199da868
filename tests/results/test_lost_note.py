"""Missing data of the test episodes is told in the report, and only where there is some."""

from __future__ import annotations

from turnwise.results.report import lost_note


def test_lost_test_episodes_are_told_by_policy() -> None:
    (note,) = lost_note({"random": 0.0, "oracle": 0.125, "grpo seed 1": 0.4})
    assert note.endswith("which count nowhere, not even as failures: oracle 12%, grpo seed 1 40%.")


def test_nothing_is_said_where_nothing_was_lost() -> None:
    assert lost_note({"random": 0.0, "grpo seed 1": 0.0}) == []
