"""Which runs may be compared: those that were tested alike."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.errors import ConfigurationError
from turnwise.statistics.evaluation_protocol import (
    LONGEST,
    NOT_RECORDED,
    circumstances,
    difference_lines,
    differences,
    require_comparable,
)

EXPERIMENT: dict[str, Any] = {
    "world": {"name": "bandit", "parameters": {"arms": {"low": 1, "high": 2}}},
    "agent": {"format": "think-answer"},
    "evaluation": {"samples": 4, "temperature": 1.0, "seed": 3, "every": 10},
    "optimization": {"learning_rate": 0.1},
}


def test_the_protocol_has_world_agent_and_evaluation_and_not_how_often_or_how_it_was_trained() -> None:
    assert circumstances(EXPERIMENT, "2", "abc") == {
        "test task set": "abc",
        "world version": "2",
        "world.name": '"bandit"',
        "world.parameters.arms.low": "1",
        "world.parameters.arms.high": "2",
        "agent.format": '"think-answer"',
        "evaluation.samples": "4",
        "evaluation.temperature": "1.0",
        "evaluation.seed": "3",
    }
    assert circumstances(EXPERIMENT, None, "abc")["world version"] == NOT_RECORDED


def test_runs_that_differ_are_named_by_the_values_that_they_have() -> None:
    found = differences(
        {"a": {"seed": "1", "task_set": "x"}, "b": {"seed": "2", "task_set": "x"}, "c": {"task_set": "x"}}
    )
    assert found == {"seed": {"1": ["a"], "2": ["b"], "not there": ["c"]}}
    assert difference_lines(found) == ["seed: 1 (a); 2 (b); not there (c)"]
    assert difference_lines({"text": {"x" * LONGEST: ["a"], "y" * (LONGEST + 1): ["b"]}}) == [
        f"text: {'x' * LONGEST} (a); {'y' * (LONGEST - 4)} ... (b)"
    ]


def test_runs_that_were_tested_alike_may_be_compared_and_others_are_refused_with_what_differs() -> None:
    alike = circumstances(EXPERIMENT, "2", "abc")
    require_comparable({"one": alike, "other": dict(alike), "third": alike})
    warmer = circumstances({**EXPERIMENT, "evaluation": {**EXPERIMENT["evaluation"], "temperature": 0.5}}, "2", "abc")
    with pytest.raises(ConfigurationError) as refused:
        require_comparable({"one": alike, "other": warmer, "third": alike})
    assert "evaluation.temperature: 1.0 (one, third); 0.5 (other)" in str(refused.value)
    assert "samples" not in str(refused.value)
