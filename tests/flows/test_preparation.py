"""What is prepared, on a real Prefect server: what a changed number of tasks computes again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from recorded_runs import tiny

from flows.dvc.stages import materialise_run
from flows.prepare import prepare_materials, prepare_policy
from flows.runtime import disk
from tests.own_view import let_see
from turnwise.errors import ConfigurationError
from turnwise.training_runs.observing import Observer, StageCall, observing
from turnwise.training_runs.state import Prepared


class Calls(Observer):
    def __init__(self) -> None:
        self.computed: list[str] = []

    def finished(self, call: StageCall) -> None:
        if not call.cached:
            self.computed.append(call.stage if call.label == "preparation" else call.label)


def prepared(*settings: str) -> tuple[Prepared, list[str]]:
    """What is prepared, and what had to be computed for it."""
    experiment = tiny("warm_start.maximum_steps=2", "warm_start.check_every=2", *settings)
    calls = Calls()
    with observing(calls):
        return prepare_policy(experiment, prepare_materials(experiment)), calls.computed


@pytest.mark.usefixtures("prefect_server", "turnwise_home")
def test_more_test_tasks_are_another_test_task_set_and_nothing_else() -> None:
    first, computed = prepared("data.test_tasks=4")
    assert len(computed) == 7
    second, computed = prepared("data.test_tasks=5")
    assert computed == ["test task set"]
    assert second == Prepared(**{**vars(first), "test_task_set": second.test_task_set}) != first
    third, computed = prepared("data.test_tasks=5", "data.validation_tasks=3")
    assert computed == ["validation task set", "warm_start"]
    assert third.demonstrations == first.demonstrations


@pytest.mark.usefixtures("prefect_server", "turnwise_home")
def test_a_run_of_dvc_is_refused_when_the_disk_has_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    let_see(monkeypatch, disk, "shutil", disk_usage=lambda path: SimpleNamespace(free=1_000))
    experiment = tiny()
    with pytest.raises(ConfigurationError, match=r"1 kB.*TW-small-disk"):
        materialise_run(experiment, experiment.ablation.variants[0], experiment.ablation.seeds[0])
