"""`rollout.lag`: the next rollout is sampled while the policy is updated, and the results depend on neither process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from comparison import compared, tiny_experiment
from project_copy import ROOT, TINY

from flows.runtime.sampler import Sampler, sampling_ahead
from flows.train import train
from tests.process_tree import command_line, descendants
from tests.stage_calls import stage_calls
from turnwise.experiment import Experiment, load, single
from turnwise.store import Reference, default_store
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.state import Prepared, Run

pytestmark = pytest.mark.chain

SETTINGS: dict[str, Any] = {
    "rollout.lag": 1,
    "optimization.correction": {"kind": "truncate"},
    "optimization.iterations": 4,
    "optimization.learning_rate": 0.002,
    "evaluation.every": 4,
    "rollout.prompts": 4,
    "monitors.probe_every": None,
}


def experiment(**settings: Any) -> Experiment:
    return single(tiny_experiment({**SETTINGS, **settings}), None, 1)


def everything(run: Run) -> list[str]:
    """All that a run has made, in order."""
    made = [run.start, *(each for iteration in run.iterations for each in iteration.made.values()), run.test]
    return [str(each) for each in made]


def nobody(*said: Any) -> None:
    """Hears what is said and does nothing."""


def rollouts(calls: list[StageCall], *, cached: bool) -> list[str]:
    """The iterations whose rollouts were cached, or not."""
    return [call.label.split()[-1] for call in calls if call.stage == "rollout" and call.cached == cached]


@pytest.fixture(scope="module")
def alone(prepared: tuple[Prepared, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    """A run that one process has made, and its home."""
    home = tmp_path_factory.mktemp("alone") / "home"
    shutil.copytree(prepared[1], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        yield train(experiment(), prepared[0], "base", 1), home


def sampled_by(run: Run, number: int) -> str:
    """The policy that the rollout of an iteration names as its input, from its provenance."""
    (record,) = default_store().lineage(run.iterations[number - 1].rollout).values()
    return str(record["inputs"]["policy"])


def test_the_rollout_of_an_iteration_is_sampled_by_the_policy_before_the_last_update(
    alone: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, home = alone
    monkeypatch.setenv("TURNWISE_HOME", str(home))
    policies = [run.prepared.warm_start, *(iteration.policy for iteration in run.iterations)]
    assert len(set(policies)) == 5
    assert [sampled_by(run, number) for number in (1, 2, 3, 4)] == [str(policies[at]) for at in (0, 0, 1, 2)]
    for number, iteration in enumerate(run.iterations, start=1):
        (record,) = default_store().lineage(iteration.policy).values()
        assert record["inputs"]["policy"] == str(policies[number - 1]), "the newest policy is updated"
        assert record["inputs"]["sampler"] == (None if number == 1 else sampled_by(run, number))
        metrics = default_store().metrics(iteration.policy)
        assert metrics["mismatch"] < 1e-5, "the engine is compared with the policy that sampled"
        assert ("lag_kl" in metrics) == (number > 1)
    lagging = [default_store().metrics(iteration.policy) for iteration in run.iterations[1:]]
    assert all(metrics["lag_kl"] > 1e-6 and metrics["importance_weight_maximum"] > 1.001 for metrics in lagging)
    first = default_store().metrics(run.iterations[0].policy)
    assert first["importance_weight_maximum"] == pytest.approx(1.0, abs=1e-4)


@contextmanager
def a_sampler() -> Iterator[tuple[Sampler, list[StageCall], list[str]]]:
    reports: list[StageCall] = []
    warnings: list[str] = []
    with sampling_ahead(True, reports.append, warnings.append) as sampler:
        assert sampler is not None
        yield sampler, reports, warnings


def test_a_process_that_samples_ahead_changes_nothing_but_who_samples(
    alone: tuple[Run, Path], fresh: Prepared, prefect_server: str
) -> None:
    others = samplers(os.getpid())
    with a_sampler() as (sampler, reports, warnings), stage_calls() as calls:
        run = train(experiment(), fresh, "base", 1, sampler=sampler)
    assert everything(run) == everything(alone[0])
    assert [call.label.split()[-1] for call in reports] == rollouts(calls, cached=True) == ["2", "3", "4"]
    assert rollouts(calls, cached=False) == ["1"] and not warnings
    assert samplers(os.getpid()) == others
    with a_sampler() as (sampler, reports, _):
        assert everything(train(experiment(), fresh, "base", 1, sampler=sampler)) == everything(run)
        assert not reports and samplers(os.getpid()) == others, "all is in the store: no process is started"


def samplers(process: int) -> list[int]:
    """The processes that sample ahead for a process."""
    return [each for each in descendants(process) if "flows.runtime.sampler" in command_line(each)]


def test_a_sampler_that_is_killed_is_replaced_and_its_rollout_is_sampled_here(
    alone: tuple[Run, Path], fresh: Prepared, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, killed, others = Sampler.begin, [], samplers(os.getpid())

    def begin_and_kill(sampler: Sampler, call: Any) -> None:
        begin(sampler, call)
        if not killed:
            killed.extend(each for each in samplers(os.getpid()) if each not in others)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(Sampler, "begin", begin_and_kill)
    with a_sampler() as (sampler, reports, warnings), stage_calls() as calls:
        run = train(experiment(), fresh, "base", 1, sampler=sampler)
    assert everything(run) == everything(alone[0])
    assert rollouts(calls, cached=False) == ["1", "2"] and len(reports) == 2
    assert len(warnings) == 1 and "ended with status -9; its rollout is sampled here" in warnings[0]


def test_a_command_that_is_killed_while_it_samples_ahead_ends_with_the_digests_of_one_process(
    alone: tuple[Run, Path], prepared: tuple[Prepared, Path], prefect_server: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(prepared[1], home)
    before = len(found(home, "rollout"))
    command = [sys.executable, "-m", "flows.commands.cli", "experiment", str(TINY), "--processes", "2"]
    command += [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={json.dumps(value)}")]
    other_hashes = str(int(os.environ.get("PYTHONHASHSEED") == "0"))
    environment = {**os.environ, "TURNWISE_HOME": str(home), "PREFECT_API_URL": prefect_server}
    environment |= {"PYTHONHASHSEED": other_hashes}
    with (tmp_path / "output").open("wb") as written:
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=written, stderr=written, start_new_session=True
        )
        deadline = time.monotonic() + 900
        # The rollout of iteration 2 is being made, or about to be, as soon as its process is there.
        while not (of_command := samplers(started.pid)):
            assert started.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
            time.sleep(0.01)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
    while any(command_line(each) for each in of_command):
        assert time.monotonic() < deadline, "the sampler ends with the process that started it"
        time.sleep(0.01)
    assert len(found(home, "rollout")) - before <= 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        patch.setenv("PYTHONHASHSEED", other_hashes)  # for the sampler, which makes the rollouts that are missing
        compared(experiment(), tmp_path / "results", processes=2)
    for kind in ("rollout", "policy", "health"):
        assert set(found(alone[1], kind)) <= set(found(home, kind))


def found(home: Path, kind: str) -> list[str]:
    """The digests of a home's artifacts of a kind."""
    return sorted(path.parent.name for path in (home / "store" / kind).glob("*/manifest.json"))


@pytest.fixture(scope="module")
def ahead(
    prepared: tuple[Prepared, Path], prefect_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Sampler, Path]]:
    """A sampler whose process several runs take in turn, and the home that it is started in."""
    home = tmp_path_factory.mktemp("ahead") / "home"
    shutil.copytree(prepared[1], home)
    with a_sampler() as (sampler, _, warnings):
        yield sampler, home
        assert not warnings


def test_after_a_return_the_healthy_policy_samples_and_what_was_sampled_ahead_is_dropped(
    prepared: tuple[Prepared, Path], ahead: tuple[Sampler, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(ahead[1]))
    rules = dict.fromkeys(load(ROOT / "params.yaml").alarms.rules)
    returns = {
        "alarms.response": "return",
        "alarms.rules": {**rules, "entropy": {"below": 100.0, "patience": 2}},
        "optimization.iterations": 3,
    }
    run = train(experiment(**returns), prepared[0], "base", 1, sampler=ahead[0])
    assert [iteration.returned is not None for iteration in run.iterations] == [False, True, False]
    returned = run.iterations[1].returned
    assert isinstance(returned, Reference)
    assert sampled_by(run, 3) == str(returned) == str(run.iterations[2].before.policy)
    assert run.iterations[2].earlier is None


def test_a_limit_that_grows_is_known_before_the_rollout_that_it_applies_to_is_begun(
    prepared: tuple[Prepared, Path], ahead: tuple[Sampler, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(ahead[1]))
    staged = {"rule": "staged", "options": {"limits": [1, 2], "lengths": 2}}
    run = train(experiment(curriculum=staged), prepared[0], "base", 1, sampler=ahead[0])
    assert [iteration.limit for iteration in run.iterations] == [1, 1, None, None]
    metrics = [default_store().metrics(iteration.health) for iteration in run.iterations]
    assert [each["horizon/limit"] for each in metrics] == [1, 1, 2, 2]
