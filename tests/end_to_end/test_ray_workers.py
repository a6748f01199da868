"""Runs on a Ray cluster of this machine: the digests of one process, also where a worker is killed on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from comparison import Computed, compared, tiny_experiment

from flows.workers.ray_cluster import LOOPBACK
from flows.workers.runs import FollowedRun, Report
from tests.process_tree import command_line, descendants
from turnwise.errors import TurnwiseError
from turnwise.experiment import Experiment
from turnwise.training_runs.display import WorkerView

os.environ.update(LOOPBACK)  # before Ray is imported
pytest.importorskip("ray", reason="needs requirements/ray.lock")
pytest.importorskip("prefect_ray", reason="needs requirements/ray.lock")
pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("turnwise_home")]

SETTINGS = {"compute.runner.kind": "ray", "compute.runner.address": "local"}


def listening(processes: list[int]) -> set[str]:
    """The addresses on which processes wait for connections."""
    connections = [each for process in processes for each in psutil.Process(process).net_connections("tcp")]
    waiting = [each for each in connections if each.status == psutil.CONN_LISTEN]
    return {each.laddr.ip.removeprefix("::ffff:") for each in waiting}


def on_ray(**further: object) -> Experiment:
    return tiny_experiment({**SETTINGS, **further})


@pytest.fixture(autouse=True)
def small_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, whatever the machine has, so that both runs are made at once; nobody is told that Ray was used."""
    import ray

    start = ray.init

    def init(*args: object, **options: object) -> object:
        return start(*args, num_cpus=2, **options)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")


def test_a_cluster_makes_what_one_process_makes_and_a_lost_worker_goes_on_elsewhere(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Report] = []
    killed: list[str] = []
    hear = FollowedRun.heard

    def kill_once(followed: FollowedRun, report: Report, view: WorkerView) -> None:
        hear(followed, report, view)
        if not killed and report.method == "iteration":
            killed.append(followed.order.name)
            assert listening(descendants(os.getpid())) == {"127.0.0.1"}
            workers = [each for each in descendants(os.getpid()) if command_line(each).startswith("ray::run")]
            assert workers, "runs are made by Ray's workers"
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
        elif killed == [followed.order.name]:
            heard.append(report)

    monkeypatch.setattr(FollowedRun, "heard", kill_once)
    done = compared(on_ray(), tmp_path)
    assert done.digest == tiny_ablation.digest
    again_begun = next(index for index, each in enumerate(heard) if each.method == "start")
    calls = [each.arguments[0] for each in heard[again_begun:] if each.method == "finished"]
    first = [call.cached for call in calls if call.label == f"{killed[0]} iteration 1"]
    assert first and all(first), "the run goes on after what was stored"
    again = compared(on_ray(), tmp_path)
    assert (again.digest, again.computed) == (done.digest, 0), "what is recorded asks for no cluster"


def test_an_ablation_whose_head_is_lost_stops_in_one_sentence_and_goes_on_when_it_is_started_again(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    workers: list[int] = []
    hear = FollowedRun.heard

    def kill_the_head(followed: FollowedRun, report: Report, view: WorkerView) -> None:
        hear(followed, report, view)
        if not killed and report.method == "start":
            below = {each: command_line(each) for each in descendants(os.getpid())}
            workers.extend(each for each, command in below.items() if command.startswith("ray::run"))
            killed.extend(each for each, command in below.items() if "gcs_server" in command)
            for worker in workers:  # runs this short would end before anything asks for the head
                os.kill(worker, signal.SIGSTOP)
            for head in killed:
                os.kill(head, signal.SIGKILL)

    monkeypatch.setattr(FollowedRun, "heard", kill_the_head)
    try:
        with pytest.raises(TurnwiseError, match=r"must make the run .* start the ablation again to go on from there"):
            compared(on_ray(), tmp_path)
    finally:
        for worker in filter(psutil.pid_exists, workers):
            os.kill(worker, signal.SIGKILL)
    assert killed
    assert compared(on_ray(), tmp_path).digest == tiny_ablation.digest


def test_no_more_runs_are_made_at_once_than_there_is_room_for(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: set[str] = set()
    together: list[set[str]] = []
    hear = FollowedRun.heard

    def note(followed: FollowedRun, report: Report, view: WorkerView) -> None:
        hear(followed, report, view)
        at_work.add(followed.order.name)
        if report.method == "finish":
            at_work.discard(followed.order.name)
        together.append(set(at_work))

    monkeypatch.setattr(FollowedRun, "heard", note)
    done = compared(on_ray(**{"compute.runner.cores": 2.0, "optimization.iterations": 6}), tmp_path)
    assert done.computed
    assert {len(each) for each in together} == {0, 1}
