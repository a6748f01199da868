"""Processes that share the runs of an ablation: the same results, whoever computed what and whoever was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
from comparison import Computed, compared
from rich.console import Console

from flows.prepare import Prepared
from flows.runtime.display import Display
from flows.runtime.worker_processes import Assignment
from tasks.observing import StageCall
from tests.process_tree import command_line, descendants
from turnwise.experiment import Experiment, load
from turnwise.reporting.formatting import of_processes
from turnwise.store import Reference

pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("turnwise_home")]

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).parent / "tiny.yaml"
BOTH = len(load(ROOT / "params.yaml", [TINY]).ablation.variants)


def tiny() -> Experiment:
    return load(ROOT / "params.yaml", [TINY])


@contextmanager
def one_each() -> Iterator[None]:
    """This process takes one of the two runs, and then waits until the other one is taken: it would be too fast."""
    every = Assignment.runs

    def runs(assignment: Assignment) -> Iterator[tuple[str, int]]:
        yield from islice(every(assignment), 1)
        deadline = time.monotonic() + 500
        while len(list(assignment.taken.iterdir())) < BOTH:
            assert time.monotonic() < deadline, "no other process has taken a run"
            time.sleep(0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assignment, "runs", runs)
        yield


def test_two_processes_make_what_one_makes_and_each_stage_counts_once(tiny_ablation: Computed, tmp_path: Path) -> None:
    with one_each():
        first = compared(tiny(), tmp_path, processes=2)
    assert first.digest == tiny_ablation.digest
    assert of_processes(first.report) == " of 2 processes"
    again = compared(tiny(), tmp_path, processes=2)
    assert (again.digest, again.computed, again.found) == (tiny_ablation.digest, 0, first.computed + first.found)


def test_what_a_process_was_lost_with_is_computed_by_the_first(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Display.finished_by_worker

    def kill_it(display: Display, call: StageCall) -> None:
        report(display, call)
        for process in descendants(os.getpid()):
            if "flows.runtime.worker_processes" in command_line(process):
                os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(Display, "finished_by_worker", kill_it)
    said = StringIO()
    with one_each():
        comparison = compared(tiny(), tmp_path, processes=2, console=Console(file=said, width=200))
    assert comparison.digest == tiny_ablation.digest
    assert "ended with status -9; what it left undone is computed here" in said.getvalue()


def test_a_process_ends_with_the_one_that_started_it(prefect_server: str, tmp_path: Path) -> None:
    nothing = Reference(kind="none", digest="0" * 32)
    prepared = Prepared(*[nothing] * 6)
    assignment = Assignment(experiment=tiny(), prepared=vars(prepared), taken=tmp_path)
    command = [sys.executable, "-m", "flows.runtime.worker_processes"]
    ended = subprocess.run(command, input=f"{assignment.model_dump_json()}\n", capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", ""), "without a word: nobody is there to hear it"


def test_a_run_is_taken_by_one(tmp_path: Path) -> None:
    nothing = Reference(kind="none", digest="0" * 32)
    assignment = Assignment(experiment=tiny(), prepared={"train_task_set": nothing}, taken=tmp_path)
    one, other = assignment.runs(), assignment.runs()
    assert [next(one), next(other)] == [("grpo-or", 1), ("mt-grpo", 1)]
    assert list(one) == list(other) == []
