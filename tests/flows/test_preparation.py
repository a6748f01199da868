"""What is prepared, on a real Prefect server: what a changed number of tasks computes again."""

from __future__ import annotations

import pytest
from recorded_runs import tiny

from flows.prepare import Prepared, prepare_materials, prepare_policy
from tasks.observing import Observer, StageCall, observing


class Calls(Observer):
    def __init__(self) -> None:
        self.computed: list[str] = []

    def finished(self, call: StageCall) -> None:
        if not call.cached:
            self.computed.append(call.label)


def prepared(*settings: str) -> tuple[Prepared, list[str]]:
    """What is prepared, and what had to be computed for it."""
    experiment = tiny("warm_start.maximum_steps=2", "warm_start.check_every=2", *settings)
    calls = Calls()
    with observing(calls):
        return prepare_policy(experiment, prepare_materials(experiment)), calls.computed


@pytest.mark.usefixtures("prefect_server", "turnwise_home")
def test_more_test_tasks_are_another_test_panel_and_nothing_else() -> None:
    first, computed = prepared("data.test_tasks=4")
    assert len(computed) == 7
    second, computed = prepared("data.test_tasks=5")
    assert computed == ["test panel"]
    assert second == Prepared(**{**vars(first), "test_panel": second.test_panel}) != first
    third, computed = prepared("data.test_tasks=5", "data.validation_tasks=3")
    assert computed == ["validation panel", "warm_start"]
    assert third.demonstrations == first.demonstrations
