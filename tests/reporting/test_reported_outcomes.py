"""What a report says of runs that were ended early, which count, and of runs that a fault left out, which do not."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console

from turnwise.data.outcomes import LeftOut
from turnwise.reporting.data.tables import tables
from turnwise.reporting.figures.learning_curves import learning_curves
from turnwise.reporting.finding import finding, report_finding
from turnwise.reporting.html.page import page
from turnwise.reporting.terminal.comparison import print_report
from turnwise.results.outcomes import EndedRun, Outcomes, VariantWork
from turnwise.results.report_data import ReportData, Row
from turnwise.statistics import student_over_seeds

GUARD, ALARM = "zero_variance_groups", "the alarm on entropy"


def ended(variant: str, seed: int, by: str = GUARD, iteration: int = 12) -> EndedRun:
    work = VariantWork(
        f"{variant} seed {seed}", 1, 96, 180, 4_711, 9_000, 4_000, 500, {"sampling": 61.0, "update": 90.0}
    )
    return EndedRun(variant, seed, iteration, 24, by, "what was seen, and what may help", work)


def test_how_many_runs_were_ended_and_by_what_is_a_sentence() -> None:
    found = Outcomes({"a": 5, "b": 5, "c": 1}, [ended("a", 1), ended("a", 4), ended("c", 1, ALARM)])
    assert found.sentences() == [
        "2 of 5 runs of a were ended by zero_variance_groups.",
        "1 of 1 run of c was ended by the alarm on entropy.",
    ]
    assert [found.mark(name) for name in "abc"] == ["2 of 5 ended", "", "1 of 1 ended"]


def test_several_causes_and_faults_are_told_apart() -> None:
    found = Outcomes(
        {"a": 5},
        [ended("a", 1), ended("a", 2, ALARM), ended("a", 4)],
        [LeftOut("a", 5, "mismatch", "another engine")],
    )
    assert found.sentences() == [
        "3 of 5 runs of a were ended, 2 by zero_variance_groups and 1 by the alarm on entropy.",
        "1 of 5 runs of a was left out, by a fault (mismatch).",
    ]
    assert found.mark("a") == "3 of 5 ended, 1 of 5 left out"


@pytest.fixture(scope="module")
def with_ended(report: ReportData) -> ReportData:
    """The made-up ablation, in which the second run of `grpo-or` was ended half-way, and one of `mt-grpo` left out."""
    curves = [
        dataclasses.replace(curve, points=[point for point in curve.points if point[0] <= 12])
        if (curve.variant, curve.seed) == ("grpo-or", 2)
        else curve
        for curve in report.curves
    ]
    went_on = Row("grpo-or, runs that went on", "went on", {"exact_match": student_over_seeds([0.58])})
    outcomes = Outcomes(
        {"grpo-or": 2, "grpo-mr": 2, "mt-grpo": 3},
        [ended("grpo-or", 2)],
        [LeftOut("mt-grpo", 3, "mismatch", "the engine sampled with other weights")],
    )
    rows = [report.rows[0], went_on, *report.rows[1:]]
    return dataclasses.replace(report, rows=rows, curves=curves, outcomes=outcomes)


def printed(report: ReportData) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_finding_says_which_runs_were_ended_or_left_out(report: ReportData, with_ended: ReportData) -> None:
    assert report.judgement is not None
    found = finding(report.judgement, report.greedy)
    assert report_finding(report) == found
    assert report_finding(with_ended) == (
        f"{found} 1 of 2 runs of grpo-or was ended by zero_variance_groups. "
        "1 of 3 runs of mt-grpo was left out, by a fault (mismatch)."
    )
    assert report_finding(dataclasses.replace(with_ended, judgement=None)).startswith("1 of 2 runs of grpo-or")


def test_the_table_marks_the_variant_and_tells_what_the_ended_runs_cost(with_ended: ReportData) -> None:
    shown = printed(with_ended)
    assert "1 of 2 ended" in shown and "1 of 3 left out" in shown
    lines = shown.splitlines()
    own, went_on = (
        next(at for at, line in enumerate(lines) if line.startswith(row)) for row in ("grpo-or ", "grpo-or, ")
    )
    assert own < went_on < next(at for at, line in enumerate(lines) if line.startswith("grpo-mr "))
    assert " ".join(shown.split()).count(
        "grpo-or seed 2: ended after iteration 12 of 24 by zero_variance_groups; it cost 2 min 31 s, "
        "4,711 tokens sampled, 4,000 trained on"
    )


def test_the_page_says_when_and_by_what_each_run_was_ended(with_ended: ReportData) -> None:
    shown = page(with_ended)
    for said in ("iteration 12 of 24", "2 min 31 s", "4,711", "A cross marks where a run was ended", "1 of 2 ended"):
        assert said in shown
    assert "mt-grpo seed 3, left out (mismatch): the engine sampled with other weights" in shown


def test_a_curve_ends_with_a_cross_and_the_mean_goes_as_far_as_all_runs_do(with_ended: ReportData) -> None:
    figure = learning_curves(with_ended)[0]
    assert "at iteration 12, the last that all its runs have, since some were ended" in figure.description
    (axes,) = figure.draw(True).axes
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    ends = [curve.points[-1] for curve in with_ended.curves if (curve.variant, curve.seed) == ("grpo-or", 2)]
    assert [tuple(line.get_xydata()[-1]) for line in crosses] == [pytest.approx(ends[0])]
    means = [line for line in axes.lines if line.get_marker() not in ("x", "None")]
    assert [line.get_xydata()[-1][0] for line in means] == [12, 24, 24]
    (alone,) = (line for line in axes.lines if line.get_marker() == "None")
    assert [point[0] for point in alone.get_xydata()] == [12, 16, 20, 24]
    assert "in the 1 run that went on" in figure.values[24]


def test_a_report_in_which_every_run_went_on_is_what_it_was(report: ReportData) -> None:
    """Its data, from which the digest of the results comes, names no outcomes; figures have no cross."""
    assert "outcomes" not in json.loads(report.to_json())
    (axes,) = learning_curves(report)[0].draw(True).axes
    assert len(axes.lines) == 3


def test_the_outcomes_are_read_back_and_the_tables_have_what_ended_runs_cost(with_ended: ReportData) -> None:
    assert ReportData.from_json(with_ended.to_json()) == with_ended
    written: dict[str, Any] = tables(with_ended)
    account = written["account.csv"].decode().splitlines()
    assert "grpo-or seed 2,tokens sampled,4711" in account and "grpo-or seed 2,update seconds,90.0" in account
    assert "went on" in written["table.csv"].decode()
    assert not any("went-on" in name for name in written), "no metric of DVC's is of the runs that went on alone"
