"""`turnwise lineage` on a real report: every number of it is answered, with the value that the report shows."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import pytest
from comparison import Computed

from flows.commands import cli
from tasks.restoring import opened
from turnwise.records import sources
from turnwise.results.report_data import ReportData
from turnwise.store import default_store
from turnwise.store.provenance import shortened
from turnwise.tracking.finding import RecordedRun, find_runs
from turnwise.world import Split

answer = partial(sources.answer, opened=opened)

pytestmark = pytest.mark.chain


@pytest.fixture
def runs(tiny_ablation: Computed, monkeypatch: pytest.MonkeyPatch) -> list[RecordedRun]:
    """Those of the tiny ablation, in its home, which nothing here changes."""
    monkeypatch.setenv("TURNWISE_HOME", str(tiny_ablation.home))
    return find_runs(f"sqlite:///{tiny_ablation.home / 'mlflow.db'}", "tiny")


@pytest.fixture
def report(tiny_ablation: Computed) -> ReportData:
    return ReportData.from_json((tiny_ablation.results / "report.json").read_text())


def of_table(results: Path) -> dict[str, float]:
    with (results / "table.csv").open() as file:
        return {f"{row['row']}/{row['column']}": float(row["value"]) for row in csv.DictReader(file)}


def test_every_cell_of_the_table_leads_to_the_evaluations_that_it_is_the_mean_of(
    tiny_ablation: Computed, runs: list[RecordedRun]
) -> None:
    told = of_table(tiny_ablation.results)
    rows = {name.split("/")[0] for name in told}
    assert rows == {"grpo-or", "mt-grpo", "warm start", "random", "oracle"}
    assert {"mt-grpo/greedy success", "warm start/greedy success", "random/success"} <= set(told)
    for name, value in told.items():
        found = answer(name, runs)
        assert found.value == value, name
        assert found.sources and all(default_store().holds(source.reference) for source in found.sources)


def test_every_number_of_the_verdicts_is_answered(runs: list[RecordedRun], report: ReportData) -> None:
    judged = report.judgement
    assert judged is not None and len(judged.standings) == 2 and len(judged.pairs) == 1
    told = {f"{pair.first} - {pair.second}": pair.difference for pair in judged.pairs}
    for standing in judged.standings:
        assert standing.gain is not None and standing.normalised is not None
        told |= {
            f"{standing.name}/mean": standing.mean,
            f"{standing.name}/interquartile mean": standing.interquartile_mean,
            f"{standing.name}/normalised": standing.normalised,
            f"{standing.name}/gain over the warm start": standing.gain.difference,
            f"{standing.name} - warm start": standing.gain.difference,
        }
    told |= {f"{each.name}/mean over the curve": each.area for each in judged.learning if each.area is not None}
    assert len(told) == 13
    for name, interval in told.items():
        assert answer(name, runs).value == interval.value, name
    for pair in judged.comparisons:
        numbers = {"p": pair.p, "corrected p": pair.corrected, "exact p": pair.exact}
        numbers |= {"effect": pair.effect, "improvement": pair.improvement}
        for name, value in numbers.items():
            assert answer(f"{pair.first} - {pair.second}/{name}", runs).value == value, name


def test_every_number_of_the_greedy_verdicts_is_answered(runs: list[RecordedRun], report: ReportData) -> None:
    greedy = report.greedy
    assert greedy is not None and greedy.measure == "greedy success" and len(greedy.comparisons) == 3
    for standing in greedy.standings:
        assert standing.gain is not None
        row = standing.name
        assert answer(f"{row}/greedy mean", runs).value == standing.mean.value
        assert answer(f"{row}/greedy interquartile mean", runs).value == standing.interquartile_mean.value
        assert answer(f"{row}/greedy gain over the warm start", runs).value == standing.gain.difference.value
    for pair in greedy.comparisons:
        found = answer(f"{pair.first} - {pair.second}/greedy difference", runs)
        assert found.value == pair.difference.value and found.sources
        assert answer(f"{pair.second} - {pair.first}/greedy effect", runs).value == (pair.effect and -pair.effect)
        assert answer(f"{pair.first} - {pair.second}/greedy corrected p", runs).value == pair.corrected


def test_every_point_of_the_profiles_and_the_iterations_to_the_threshold_are_answered(
    runs: list[RecordedRun], report: ReportData
) -> None:
    judged = report.judgement
    assert judged is not None and set(judged.profiles) == {"grpo-or", "mt-grpo"}
    for name, profile in judged.profiles.items():
        for threshold, share in profile:
            assert answer(f"{name}/share above {threshold:.2f}", runs).value == share.value, (name, threshold)
    for learning in judged.learning:
        found = answer(f"{learning.name}/iterations to {learning.reached.stated:g}", runs)
        assert found.value == learning.reached.median and found.sources


def test_every_row_of_the_account_is_answered(tiny_ablation: Computed, runs: list[RecordedRun]) -> None:
    with (tiny_ablation.results / "account.csv").open() as file:
        rows = [(f"{row['variant']}/{row['what']}", float(row["how much"])) for row in csv.DictReader(file)]
    assert {"mt-grpo/tokens sampled", "grpo-or/update seconds"} <= {name for name, _ in rows}
    for name, value in rows:
        found = answer(name, runs)
        assert found.value == pytest.approx(value, rel=1e-9) and found.sources, name


def test_every_point_of_every_curve_is_answered(runs: list[RecordedRun], report: ReportData) -> None:
    of_runs = {(run.artifacts.variant, run.artifacts.seed): run for run in runs}
    assert len({curve.metric for curve in report.curves}) > 10
    for curve in report.curves:
        for iteration, value in curve.points:
            found = answer(curve.metric, [of_runs[curve.variant, curve.seed]], iteration)
            assert found.value == value, (curve.metric, iteration)


@pytest.mark.parametrize(
    ("what", "split"),
    [("mt-grpo - warm start", "test"), ("oracle/success", "test"), ("mt-grpo/mean over the curve", "validation")],
)
def test_the_command_tells_the_tree_to_the_task_sets(
    runs: list[RecordedRun],
    what: str,
    split: Split,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    cli.run(["lineage", what, "--of", "tiny"])
    said = capsys.readouterr().out
    assert said.startswith(f"{what} = {answer(what, runs).value:.4g}")
    assert shortened(runs[0].artifacts.task_set(split)) in said
    assert ("MLflow" in said) == what.startswith("mt-grpo")
