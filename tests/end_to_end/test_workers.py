"""Workers that share the runs of an ablation: the same results, whoever made what and whoever was lost."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from io import StringIO
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from comparison import Computed, compared, tiny_experiment
from rich.console import Console

from flows.plan import plan_ablation
from flows.workers.runs import FollowedRun, Report, RunOrder
from flows.workers.sharing import SharedRuns
from tests.process_tree import command_line, descendants
from turnwise.project import home
from turnwise.reporting.formatting import process_note
from turnwise.store import Reference
from turnwise.training_runs.display import WorkerView
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.state import Prepared

pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("turnwise_home")]

WORKER = "flows.workers.processes"


def worker_run() -> Any:
    """The run in MLflow that the worker makes."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home() / 'mlflow.db'}")
    found = [run for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
    return next(run for run in found if run.data.tags["mlflow.runName"] == "mt-grpo seed 1")


def finished(reports: list[Report]) -> list[StageCall]:
    """The stages that these reports say have returned."""
    return [each.arguments[0] for each in reports if each.method == "finished"]


def test_a_run_whose_worker_is_killed_goes_on_in_another_and_is_seen_live_with_the_results_of_one_process(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Report] = []
    seen_live: list[int] = []
    hear = FollowedRun.heard

    def kill_the_first(followed: FollowedRun, report: Report, view: WorkerView) -> None:
        hear(followed, report, view)
        heard.append(report)
        if report.method != "iteration":
            return
        live = worker_run()
        assert live.info.status == "RUNNING", "the record of the run is open while the worker is at work"
        seen_live.append(int("rollout/success" in live.data.metrics))
        if len(seen_live) == 1:
            for process in descendants(os.getpid()):
                if WORKER in command_line(process):
                    os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(FollowedRun, "heard", kill_the_first)
    monkeypatch.setattr(SharedRuns, "_take_back", lambda shared, each: False)  # this process would be too fast
    said = StringIO()
    first = compared(tiny_experiment(), tmp_path, processes=2, console=Console(file=said, width=200))
    assert first.digest == tiny_ablation.digest
    assert "ended with status -9; what it left undone of mt-grpo seed 1 is given to another one" in said.getvalue()
    assert [each.method for each in heard].count("start") == 2, "the run was begun again"
    assert heard[-1].method == "finish" and any(each.method == "started" for each in heard)
    assert seen_live and all(seen_live), "each iteration is recorded as soon as it is heard of"
    again = [index for index, each in enumerate(heard) if each.method == "start"][1]
    calls = finished(heard[again:])
    assert all(call.cached for call in calls if call.label.endswith("iteration 1")), "it goes on after what is stored"
    computed = [(call.stage, call.label) for call in finished(heard) if not call.cached]
    # A stage reports its end before Prefect records its result: the kill may fall between the two.
    assert len(computed) - len(set(computed)) <= 1, "no result that was recorded is computed again"
    assert process_note(first.report) == " of 2 processes"
    repeated = compared(tiny_experiment(), tmp_path, processes=2)
    planned = plan_ablation(tiny_experiment())
    assert repeated.found == len(planned.stages), "the share that is shown counts all stages"
    assert planned.kinds == planned.recorded
    assert (repeated.digest, repeated.computed, repeated.found) == (first.digest, 0, first.computed + first.found)


def test_a_worker_ends_with_the_process_that_started_it(prefect_server: str) -> None:
    nothing = Prepared(*[Reference(kind="none", digest="0" * 32)] * 6)
    here, there = Pipe()
    order = RunOrder(experiment=tiny_experiment(), prepared=nothing, variant="nowhere", seed=1)
    command = [sys.executable, "-m", "turnwise.child_process", WORKER, str(there.fileno())]
    with here, there:
        here.send((False,))
        ended = subprocess.run(command, input="", pass_fds=[there.fileno()], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", ""), "without a word: nobody is there to hear it"
    sent = pickle.loads(pickle.dumps(order))
    assert sent == order and "made_world" not in vars(sent.experiment), "a world of the user's is made again there"
