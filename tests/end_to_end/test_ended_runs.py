"""An ablation in which a guard and an alarm end some of the runs: they are outcomes, and count like any other.

One alarm ends one of two runs of a variant; a guard ends both runs of another. What a fault ends is left out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from comparison import compared, tiny_experiment
from project_copy import ROOT, TINY

import turnwise as tw
from flows import report as reports
from flows.commands.cli import status_of
from flows.dvc import stages as dvc_stages
from flows.python.recorded import runs as recorded_runs
from flows.report import AblationResult
from flows.sweep import sweep, sweep_experiment
from flows.train import train
from flows.workers.runs import FollowedRun, Report
from flows.workers.sharing import SharedRuns
from tasks.health.health import read_health
from turnwise.config.sweeps import candidates
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment, load
from turnwise.reporting.finding import report_finding
from turnwise.results.cells import cell
from turnwise.results.report_data import ReportData
from turnwise.store import default_store
from turnwise.tracking.finding import RecordedRun
from turnwise.training_runs.state import Prepared
from turnwise.world import make_world

pytestmark = pytest.mark.chain

NO_RULES = dict.fromkeys(load(ROOT / "params.yaml").alarms.rules)
SMALL: dict[str, Any] = {
    "ablation.name": "ended",
    "ablation.seeds": [1, 2],
    "optimization.iterations": 3,
    "evaluation.every": 9,
    "monitors.probe_every": None,
    "alarms.rules": NO_RULES,
}
PLANNED = SMALL["optimization.iterations"]
GUARD = "zero_variance_groups"
ALIKE = {
    "rollout": {"temperature": 0.01},
    "rewards": {"format": {"weight": 0.0}, "invalid_turn": {"weight": 0.0}},
}
"""The replies of a group are the same, in a world without chance, and only success pays."""


def tiny(**settings: Any) -> Experiment:
    return tiny_experiment({**SMALL, **settings})


def with_ended_runs(bound: float) -> Experiment:
    """A variant whose runs end by replies of more tokens than the bound, and one in which a group's are alike."""
    variants = {
        "watched": {"alarms": {"response": "stop", "rules": {"reply_tokens": {"above": bound}}}},
        "certain": {**ALIKE, "guards": {GUARD: 2, "no_signal": None}},
    }
    return tiny(**{"variants": variants, "ablation.variants": list(variants)})


def bound_between(prepared: Prepared) -> float:
    """A number of reply tokens between those of the first iterations of the two seeds."""
    found = []
    for seed in (1, 2):
        run = train(tiny(**{"optimization.iterations": 1}), prepared, "watched", seed, tested=False)
        found.append(read_health(run.iterations[0].health).monitors[-1]["reply_tokens"])
    assert found[0] != found[1]
    return sum(found) / 2


@dataclass(frozen=True)
class Ended:
    """The ablation as it was computed."""

    experiment: Experiment
    result: AblationResult
    folder: Path

    @property
    def data(self) -> ReportData:
        return self.result.report

    @property
    def runs(self) -> dict[str, RecordedRun]:
        return {run.name: run for run in recorded_runs("ended")}


@pytest.fixture(scope="module")
def ended(prepared: tuple[Prepared, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """The ablation, in a home of its own."""
    folder = tmp_path_factory.mktemp("ended")
    shutil.copytree(prepared[1], folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder / "home"))
        chosen = with_ended_runs(bound_between(prepared[0]))
        yield Ended(chosen, compared(chosen, folder / "results"), folder)


def test_the_policy_that_a_run_ended_with_is_tested_and_counts_in_every_row_pair_and_verdict(ended: Ended) -> None:
    early = {name: run for name, run in ended.runs.items() if run.ended is not None}
    (watched,) = (run for run in early.values() if run.artifacts.variant == "watched")
    assert {run.artifacts.variant for run in early.values()} == {"watched", "certain"} and len(early) == 3
    for run in early.values():
        last, test = run.artifacts.iterations[-1], run.artifacts.test
        assert run.ended is not None and test is not None
        assert len(run.artifacts.iterations) == run.ended.iteration == (1 if run is watched else 2)
        tested = [record["inputs"]["policy"] for record in default_store().lineage(test).values()]
        assert str(last["policy"]) in tested
    rows = {row.name: row.cells["success"] for row in ended.data.rows}
    world = make_world(ended.experiment.world.name, ended.experiment.world.parameters)
    for variant in ("watched", "certain"):
        tests = [ended.runs[f"{variant} seed {seed}"].artifacts.test for seed in (1, 2)]
        interval = rows[variant]
        assert interval is not None and all(tests)
        assert interval.sample == tuple(cell(test, world, world.primary_column) for test in tests if test)
    judgement = ended.data.judgement
    assert judgement is not None
    assert [standing.mean.count for standing in judgement.standings] == [2, 2]
    assert [pair.paired for pair in judgement.pairs] == [True]
    assert [gain.difference.count for gain in judgement.gains] == [2, 2]


def test_the_runs_that_went_on_stand_beneath_all_of_them_and_never_alone(ended: Ended) -> None:
    rows = [(row.name, row.kind) for row in ended.data.rows][:3]
    assert rows == [
        ("watched", "variant"),
        ("watched, runs that went on", "went on"),
        ("certain", "variant"),
    ]
    alone = ended.data.rows[1].cells["success"]
    assert alone is not None and alone.count == 1


def test_the_finding_says_how_many_were_ended_and_by_what(ended: Ended) -> None:
    assert (
        " 1 of 2 runs of watched was ended by the alarm on reply_tokens. "
        "2 of 2 runs of certain were ended by zero_variance_groups. "
    ) in report_finding(ended.data)


def test_what_the_ended_runs_cost_is_in_the_account(ended: Ended) -> None:
    assert ended.data.outcomes is not None
    for run in ended.data.outcomes.ended:
        assert run.work is not None and run.work.sampled_tokens > 0 and sum(run.work.seconds.values()) > 0
        (whole,) = (work for work in ended.data.work if work.variant == run.variant)
        assert run.work.sampled_tokens <= whole.sampled_tokens
    of_certain = [run.work for run in ended.data.outcomes.ended if run.variant == "certain"]
    (whole,) = (work for work in ended.data.work if work.variant == "certain")
    assert sum(work.sampled_tokens for work in of_certain if work) == whole.sampled_tokens


def test_curves_end_where_the_run_did_and_areas_are_over_the_training_that_was_planned(ended: Ended) -> None:
    curves = {
        (curve.variant, curve.seed): curve.points for curve in ended.data.curves if curve.metric == "validation/sampled"
    }
    ends = {run.name: run.ended.iteration if run.ended else PLANNED for run in ended.runs.values()}
    assert {f"{variant} seed {seed}": points[-1][0] for (variant, seed), points in curves.items()} == ends
    assert ended.data.judgement is not None
    for learning in ended.data.judgement.learning:
        expected = []
        for seed in (1, 2):
            (at, first), (end, last) = curves[learning.name, seed]
            assert at == 0
            expected.append(((first + last) / 2 * end + last * (PLANNED - end)) / PLANNED)
        assert learning.area is not None and learning.area.sample == pytest.approx(tuple(expected))


def test_mlflow_says_when_and_by_what_a_run_was_ended(ended: Ended) -> None:
    for run in ended.runs.values():
        assert run.finished
        if run.ended is None:
            assert not any(tag.startswith("turnwise.ended") for tag in run.tags)
        else:
            assert run.tags["turnwise.ended.iteration"] == str(run.ended.iteration)
            assert run.tags["turnwise.ended.by"] == run.ended.reason
            assert run.tags["turnwise.ended"] == f"after iteration {run.ended.iteration} of 3, by {run.ended.reason}"


def test_a_repeat_computes_nothing_and_has_the_same_digest(
    ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = compared(ended.experiment, tmp_path)
    assert (again.computed, again.digest) == (0, ended.result.digest)
    assert again.report.outcomes is not None and ended.data.outcomes is not None
    # What it cost has seconds in it, which are others where a test between has made the same artifact anew.
    assert [replace(run, work=None) for run in again.report.outcomes.ended] == [
        replace(run, work=None) for run in ended.data.outcomes.ended
    ]
    monkeypatch.setattr(reports, "results_folder", lambda _: tmp_path)
    found = tw.ablation(ended.experiment, quiet=True).result
    assert (found.computed, found.digest) == (0, ended.result.digest)


def test_recorded_runs_are_compared_shown_and_traced(ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    tracking = ["--tracking", recorded_runs("ended").tracking]
    assert status_of(["compare", "ended", *tracking]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 of 2 runs of certain were ended by zero_variance_groups." in said
    (watched,) = (run for run in ended.runs.values() if run.ended and run.artifacts.variant == "watched")
    assert status_of(["show", watched.name, *tracking]) == 0
    for number in ("watched/success", "watched - certain", "certain/mean over the curve"):
        assert status_of(["lineage", number, "--of", "ended", *tracking]) == 0
    judgement = recorded_runs("ended").judgement()
    assert ended.data.judgement is not None
    assert [each.area for each in judgement.learning] == [each.area for each in ended.data.judgement.learning]
    results = recorded_runs("ended").results().set_index("run")
    assert results.loc["certain seed 1", "ended_by"] == GUARD
    assert results.loc[watched.name, "ended_at"] == 1


def test_the_stage_of_dvc_writes_what_an_ended_run_came_to(
    ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dvc_stages, "project_root", lambda: tmp_path)
    dvc_stages.materialise("train", ended.experiment, "certain", 1)
    folder = tmp_path / "runs" / "certain" / "1"
    written = json.loads((folder / "metrics.json").read_text())
    assert written["ended"] == {"iteration": 2, "by": GUARD} and "sampled" in written["test"]
    assert len((folder / "training.csv").read_text().splitlines()) == 3
    assert (folder / "policy" / "model.safetensors").is_file()


def test_a_worker_makes_ended_runs_with_the_results_of_one_process(
    fresh: Prepared, ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Report] = []
    hear = FollowedRun.heard
    monkeypatch.setattr(FollowedRun, "heard", lambda *heard: [hear(*heard), reports.append(heard[1])])
    monkeypatch.setattr(SharedRuns, "_take_back", lambda shared, each: False)  # this process would be too fast
    shared = compared(ended.experiment, tmp_path, processes=2)
    assert any(each.method == "finish" and each.arguments[0].ended is not None for each in reports)
    assert shared.digest == ended.result.digest


def test_an_ended_run_of_a_sweep_counts_with_its_evaluation_at_the_end(
    ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.sweep.results_folder", lambda _: tmp_path)
    tried = candidates({"optimization.learning_rate": [0.0004, 0.0008]})
    settings = {
        "rollout.temperature": 0.01,
        "rewards.format.weight": 0.0,
        "rewards.invalid_turn.weight": 0.0,
        f"guards.{GUARD}": 1,
        "guards.no_signal": None,
    }
    result = sweep(sweep_experiment(tiny(**settings), tried, seeds=2), tried, quiet=True)
    result.require_whole()
    assert [standing.mean.count for standing in result.report.judgement.standings] == [2, 2]
    assert result.report.outcomes is not None
    assert result.report.outcomes.mark(tried[0].name) == "2 of 2 ended"
    assert "2 of 2 runs of learning_rate-0.0004 were ended by zero_variance_groups." in result.report.table().notes


def test_a_fault_leaves_its_run_out_loudly_and_is_the_only_failure(
    fresh: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = {"base": {}, "faulty": {"optimization": {"maximum_mismatch": 1e-12}}}
    settings = {"variants": variants, "ablation.variants": list(variants), "ablation.seeds": [1]}
    chosen = tiny(**settings, **{"ablation.name": "with-a-fault"})
    result = compared(chosen, tmp_path)
    assert [(each.name, each.by) for each in result.left_out] == [("faulty seed 1", "mismatch")]
    assert "1 of 1 run of faulty was left out, by a fault (mismatch)." in report_finding(result.report)
    cells = {row.name: row.cells["success"] for row in result.report.rows}
    assert cells["base"] is not None and cells["faulty"] is None
    with pytest.raises(TrainingEnded, match=r"left out by a fault: faulty seed 1 \(mismatch\)(.|\n)*last good policy"):
        result.require_whole()
    (base,) = recorded_runs("with-a-fault").judgement().standings
    assert base.name == "base"
    tags = {run.name: run.tags for run in recorded_runs("with-a-fault")}
    assert tags["faulty seed 1"]["turnwise.left_out"] == "mismatch"
    again = compared(chosen, tmp_path)
    assert again.digest == result.digest
    with pytest.raises(TrainingEnded, match="faulty seed 1"):
        compared(tiny(**{**settings, "ablation.variants": ["faulty"], "ablation.name": "nothing"}), tmp_path)


@pytest.mark.parametrize(("variant", "status"), [("faulty", 1), ("certain", 0)])
def test_the_exit_status_is_of_faults_alone(
    variant: str, status: int, fresh: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    variants = {
        "base": {},
        "faulty": {"optimization": {"maximum_mismatch": 1e-12}},
        "certain": {**ALIKE, "guards": {GUARD: 1, "no_signal": None}},
    }
    settings = {
        **SMALL,
        "variants": variants,
        "ablation.variants": ["base", variant],
        "ablation.seeds": [1],
        "optimization.iterations": 2,
    }
    monkeypatch.setattr(reports, "results_folder", lambda _: tmp_path)
    flags = [part for key, value in settings.items() for part in ("-s", f"{key}={json.dumps(value)}")]
    assert status_of(["ablation", str(TINY), "--parameters", str(ROOT / "params.yaml"), *flags]) == status
    shown = capsys.readouterr()
    assert "success" in shown.out and (tmp_path / "report.html").is_file()
    assert ("left out by a fault" in shown.err) == (variant == "faulty")
