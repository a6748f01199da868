"""`turnwise evaluate --after`: what warm starts of several lengths begin with, as the command tells it."""

from __future__ import annotations

import json
import re

import pytest
from comparison import tiny_experiment
from project_copy import ROOT, TINY

from flows.commands.cli import status_of
from flows.plan import plan_ablation
from turnwise.store import default_store
from turnwise.training_runs.observing import Observer, StageCall, observing
from turnwise.training_runs.state import Prepared

pytestmark = pytest.mark.chain

LINE = re.compile(r"^after (\d)       success \d\.\d{3}  greedy success \d\.\d{3}", re.MULTILINE)
COMMAND = ("evaluate", str(TINY), "--parameters", str(ROOT / "params.yaml"), "--after")


def test_each_length_plays_validation_tasks_alone_and_an_experiment_that_begins_with_it_finds_it(
    fresh: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    said_before: list[list[str]] = []

    class Listener(Observer):
        def finished(self, call: StageCall) -> None:
            if call.stage == "warm_start":
                said_before.append(LINE.findall(capsys.readouterr().out))

    with observing(Listener()):
        assert status_of([*COMMAND, "0,3,2"]) == 0
    assert [*said_before, LINE.findall(capsys.readouterr().out)] == [["0"], ["3"], ["2"]], "each as soon as it is known"
    store = default_store()
    records = {key: each for one in store.references("evaluation") for key, each in store.lineage(one).items()}
    assert [each["parameters"]["split"] for each in records.values()] == ["validation"] * 3
    chosen = tiny_experiment(["warm_start.maximum_steps=3", "warm_start.check_every=3"])
    begins = {each.stage: each.recorded for each in plan_ablation(chosen).stages if not each.run}
    assert begins["warm_start"] is not None
    curve = json.loads((store.folder(begins["warm_start"]) / "warm_start.json").read_text())
    assert [each["step"] for each in curve] == [3]
    evaluations = [each.recorded for each in plan_ablation(chosen).stages if each.kind == "evaluate"]
    assert evaluations[0] is not None, "its first evaluation is the command's"


def test_what_is_no_number_of_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([*COMMAND, "8;16"]) == 2
    assert "--after must be numbers of steps, such as 0,8,16; found '8;16'" in capsys.readouterr().err
