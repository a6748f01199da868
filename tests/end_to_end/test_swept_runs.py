"""A sweep of a tiny experiment, as the command runs it: what takes part, what is found again, and what is refused."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from comparison import tiny_experiment
from project_copy import ROOT, TINY

from flows import sweep as of_flows
from flows.commands.cli import status_of
from flows.plan import plan_runs
from flows.sweep import sweep_experiment, sweep_seeds
from flows.workers.runs import FollowedRun, Report
from flows.workers.sharing import SharedRuns
from tests.stage_calls import stage_calls
from turnwise.config.sweeps import candidates
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.store import Store, default_store
from turnwise.training_runs.display import WorkerView
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.state import Prepared
from turnwise.training_runs.work_left import kind_of

pytestmark = pytest.mark.chain

RATE = "optimization.learning_rate"
COMMAND = ("sweep", str(TINY), "--parameters", str(ROOT / "params.yaml"), "-s", f"{RATE}=4e-4,5e-3", "--seeds", "2")


def tiny(*settings: str) -> Experiment:
    return tiny_experiment(settings)


def parameters(calls: list[StageCall]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each stage with the parameters under which its artifact was made."""
    for call in calls:
        for record in default_store().lineage(call.reference).values():
            yield call.stage, record["parameters"]


@pytest.fixture
def results(fresh: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(of_flows, "results_folder", lambda experiment: tmp_path / experiment.ablation.name)
    return tmp_path / "tiny-sweep"


def test_no_test_task_and_no_seed_of_the_comparison_takes_part_and_a_repeat_costs_nothing(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage_calls() as calls:
        assert status_of([*COMMAND, "-s", "optimization.iterations=1"]) == 0
    splits = {name: found["split"] for name, found in parameters(calls) if "split" in found and name != "task_set"}
    assert splits == {"evaluate": "validation"}
    seeds = {found["seed"] for name, found in parameters(calls) if name == "rollout"}
    assert seeds == {1001, 1002} and seeds.isdisjoint(tiny().ablation.seeds)
    written = json.loads((results / "sweep.json").read_text())
    assert [each["values"][RATE] for each in written["candidates"]] == [0.0004, 0.005]
    assert (results / "sweep.csv").read_text().count("\n") == 5
    said = capsys.readouterr().out
    assert "against the best" in said and f"Best: {RATE} {written['best'][RATE]}" in said
    following = shlex.split(said.rpartition("next    ")[2])
    assert following[-4:] == ["-s", "optimization.iterations=1", "-s", f"{RATE}={written['best'][RATE]}"]
    with stage_calls() as again:
        assert status_of([*COMMAND, "-s", "optimization.iterations=1"]) == 0
    assert all(call.cached for call in again)
    swept = sweep_experiment(tiny("optimization.iterations=1"), candidates({RATE: [0.0004, 0.005]}), seeds=2)
    planned = plan_runs(swept, tested=False)
    assert Counter(kind_of(call.stage, call.label) for call in again) == planned.kinds == planned.recorded


@pytest.mark.parametrize("fault", [False, True])
def test_two_processes_share_the_runs_with_the_results_of_one_and_play_no_test_task(
    results: Path, monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    limit = "optimization.maximum_mismatch" if fault else "optimization.clip_high"
    tried = candidates({limit: [0.2, 1e-12 if fault else 0.3]})
    swept = sweep_experiment(tiny("optimization.iterations=1"), tried, seeds=1)
    reports: list[Report] = []
    hear = FollowedRun.heard

    def listen(followed: FollowedRun, report: Report, view: WorkerView) -> None:
        hear(followed, report, view)
        reports.append(report)

    monkeypatch.setattr(FollowedRun, "heard", listen)
    monkeypatch.setattr(SharedRuns, "_take_back", lambda shared, each: False)  # this process would be too fast
    shared = of_flows.sweep(swept, tried, processes=2, quiet=True)
    assert reports[-1].method == ("leave_out" if fault else "finish"), "the worker has made the second candidate"
    assert {found["split"] for found in evaluated(default_store())} == {"validation"}
    assert [(each.variant, each.by) for each in shared.left_out] == ([(tried[1].name, "mismatch")] if fault else [])
    alone = of_flows.sweep(swept, tried, quiet=True)
    assert (alone.digest, alone.computed) == (shared.digest, 0)
    assert alone.report.to_json() == shared.report.to_json()


def evaluated(store: Store) -> Iterator[dict[str, Any]]:
    """The parameters of every evaluation in a store."""
    for reference in store.references("evaluation"):
        for record in store.lineage(reference).values():
            yield record["parameters"]


def test_seeds_are_none_of_those_of_the_comparison() -> None:
    assert sweep_seeds(tiny(), 3) == [1001, 1002, 1003]
    assert sweep_seeds(tiny("ablation.seeds=[1001, 1003]"), 3) == [1002, 1004, 1005]


def test_a_variant_is_swept_with_what_it_changes_and_the_parameters_own_value_is_a_candidate() -> None:
    tried = candidates({RATE: [0.0004, 0.001]})
    swept = sweep_experiment(tiny(), tried, "mt-grpo", seeds=1)
    assert swept.ablation.name == "tiny-mt-grpo-sweep"
    assert [swept.variant(each.name).optimization.learning_rate for each in tried] == [0.0004, 0.001]
    assert {swept.variant(each.name).credit.estimator for each in tried} == {"mt-grpo"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"optimization.lerning_rate": [1, 2]}, "learning_rate"),
        ({RATE: [0.001, 0.001]}, None),
        ({RATE: [0.001, "1e-3x"]}, "optimization.learning_rate"),
        ({"data.seed": [1, 2]}, "must not change data: what is prepared is shared by all variants"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_compute(values: dict[str, Any], said: str | None) -> None:
    tried = candidates(values)
    if said is None:
        assert len(tried) == 1
        return
    with pytest.raises(ConfigurationError) as found:
        sweep_experiment(tiny(), tried)
    assert said in str(found.value)
