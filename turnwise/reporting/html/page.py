"""The report: one offline HTML page, with its data (`report.json`), tables and figures as files next to it.

Everything is a function of the report data; what has no content has no section.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from turnwise.reporting.data.history import VariantWork
from turnwise.reporting.data.report_data import ReportData
from turnwise.reporting.figures.comparison import (
    comparisons,
    interval_data,
    profile_figure,
    reference_dashes,
    time_account,
)
from turnwise.reporting.figures.drawing import Figure, styles
from turnwise.reporting.figures.endings import endings_figure, looks, variants_with_endings
from turnwise.reporting.figures.learning_curves import curves_by_topic, learning_curves
from turnwise.reporting.html.rendering import render
from turnwise.reporting.token_heat_map import largest_advantage
from turnwise.store.atomic_write import write_together

PAGE_FILE = "report.html"
DATA_FILE = "report.json"
TABLE_FILE = "table.csv"
CURVES_FILE = "curves.csv"
VERDICTS_FILE = "verdicts.csv"
ACCOUNT_FILE = "account.csv"
FIGURES_FOLDER = "figures"

TABLE_HEADER = ("row", "kind", "column", "value", "low", "high", "over", "count", "level", "method")
CURVES_HEADER = ("metric", "variant", "seed", "iteration", "value")
VERDICTS_HEADER = (
    "first",
    "second",
    "difference",
    "low",
    "high",
    "p",
    "corrected p",
    "effect",
    "improvement",
    "verdict",
)
ACCOUNT_HEADER = ("variant", "what", "how much")
COUNTS: tuple[tuple[str, Callable[[VariantWork], int]], ...] = (
    ("runs", lambda work: work.runs),
    ("episodes in training", lambda work: work.episodes),
    ("turns in training", lambda work: work.turns),
    ("tokens sampled", lambda work: work.sampled_tokens),
    ("tokens read", lambda work: work.read_tokens),
    ("tokens trained on", lambda work: work.trained_tokens),
    ("tokens sampled in evaluation", lambda work: work.evaluation_tokens),
)


def page(report: ReportData) -> str:
    """The report's page as HTML text."""
    variants = variants_with_endings(report)
    return render(
        "report.html.jinja",
        title=report.title,
        report=report,
        styles=styles(report),
        reference_dashes=reference_dashes(report),
        comparisons=comparisons(report),
        profiles=_profiles(report),
        curves=curves_by_topic(report),
        seeds=len({curve.seed for curve in report.curves}),
        endings=endings_figure(variants) if variants else None,
        ending_looks=looks(variants).values(),
        ending_variants=len(variants),
        time_account=time_account(report) if report.seconds else None,
        work_counts=COUNTS,
        work_stages=[stage for stage in report.stages if any(stage in work.seconds for work in report.work)],
        largest_advantage=largest_advantage(report.samples),
        files={
            "figures": FIGURES_FOLDER,
            "table": TABLE_FILE,
            "verdicts": VERDICTS_FILE,
            "account": ACCOUNT_FILE,
            "curves": CURVES_FILE,
            "report": DATA_FILE,
        },
    )


def write_report(report: ReportData, folder: Path, further: Mapping[str, bytes] | None = None) -> None:
    """Write `report.html`, `report.json`, tables as CSV and `figures/` into `folder`; each figure is a PNG and a CSV.

    The same report data give the same bytes. `further` has other files by name. All files are put in place together;
    files of a previous report that this one does not have are removed. Other files in the folder stay.
    """
    files = {
        PAGE_FILE: page(report).encode(),
        DATA_FILE: report.to_json().encode(),
        TABLE_FILE: _csv(TABLE_HEADER, _table_rows(report)),
        CURVES_FILE: _csv(CURVES_HEADER, _curve_rows(report)),
    }
    if report.judgement is not None:
        files[VERDICTS_FILE] = _csv(VERDICTS_HEADER, _verdict_rows(report))
    if report.work:
        files[ACCOUNT_FILE] = _csv(ACCOUNT_HEADER, _work_rows(report))
    for figure in all_figures(report):
        files[f"{FIGURES_FOLDER}/{figure.name}.png"] = figure.png()
        files[f"{FIGURES_FOLDER}/{figure.name}.csv"] = _csv(figure.header, figure.data)
    files |= further or {}
    former = [path.name for path in (folder / FIGURES_FOLDER).glob("*") if path.suffix in (".png", ".csv")]
    write_together(folder, files, [VERDICTS_FILE, ACCOUNT_FILE, *(f"{FIGURES_FOLDER}/{name}" for name in former)])


def all_figures(report: ReportData) -> list[Figure]:
    """Every figure of the report."""
    variants, profiles = variants_with_endings(report), _profiles(report)
    return [
        *comparisons(report),
        *([profiles] if profiles else []),
        *learning_curves(report),
        *([endings_figure(variants)] if variants else []),
        *([time_account(report)] if report.seconds else []),
    ]


def _profiles(report: ReportData) -> Figure | None:
    return profile_figure(report) if report.judgement is not None and report.judgement.profiles else None


def _table_rows(report: ReportData) -> list[tuple[object, ...]]:
    return [
        (row.name, row.kind, column.key, *interval_data(interval), interval.method)
        for row in report.rows
        for column in report.columns
        if (interval := row.cells.get(column.key)) is not None
    ]


def _curve_rows(report: ReportData) -> list[tuple[object, ...]]:
    return [
        (curve.metric, curve.variant, curve.seed, iteration, value)
        for curve in report.curves
        for iteration, value in curve.points
    ]


def _verdict_rows(report: ReportData) -> list[tuple[object, ...]]:
    """All comparisons: gains over the warm start first, then pairs of variants."""
    assert report.judgement is not None
    gains = [standing.gain for standing in report.judgement.standings if standing.gain is not None]
    return [
        (
            each.first,
            each.second,
            each.difference.value,
            each.difference.low,
            each.difference.high,
            each.p,
            each.corrected,
            each.effect,
            each.improvement,
            each.verdict,
        )
        for each in [*gains, *report.judgement.pairs]
    ]


def _work_rows(report: ReportData) -> list[tuple[object, ...]]:
    counts = [(work.variant, name, count(work)) for work in report.work for name, count in COUNTS]
    seconds = [
        (work.variant, f"{stage} seconds", value) for work in report.work for stage, value in work.seconds.items()
    ]
    return [*counts, *seconds]


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue().encode()
