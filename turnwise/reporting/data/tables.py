"""The report's data as files: `report.json`, from which the report can be drawn again, and its tables as CSV.

`TextTable` is a small table of text, which the terminal prints, a page shows, and CSV holds.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnwise.reporting.formatting import UNDEFINED, bounds, number, signed
from turnwise.results.outcomes import VariantWork
from turnwise.results.report_data import ReportData
from turnwise.statistics import Comparison, Judgement
from turnwise.statistics.interval import Interval

DATA_FILE = "report.json"
TABLE_FILE = "table.csv"
CURVES_FILE = "curves.csv"
VERDICTS_FILE = "verdicts.csv"
ACCOUNT_FILE = "account.csv"
FIGURES_FOLDER = "figures"
METRICS_FOLDER = "metrics"
"""A file per row of the table, with its two most important numbers: what `dvc metrics show` lists."""

TABLE_HEADER = ("row", "kind", "column", "value", "low", "high", "over", "count", "level", "method")
CURVES_HEADER = ("metric", "variant", "seed", "iteration", "value")
COMPARISON: Mapping[str, Callable[[Comparison], object]] = {
    "first": lambda each: each.first,
    "second": lambda each: each.second,
    "difference": lambda each: each.difference.value,
    "low": lambda each: each.difference.low,
    "high": lambda each: each.difference.high,
    "p": lambda each: each.p,
    "corrected p": lambda each: each.corrected,
    "effect": lambda each: each.effect,
    "improvement": lambda each: each.improvement,
    "verdict": lambda each: each.verdict,
}
"""What a table of comparisons has of each, by the column's name."""
VERDICTS_HEADER = ("measure", *COMPARISON)
COSTS_HEADER = ("axis", "spent", "what", "value", "low", "high", "over", "count", "level")
ACCOUNT_HEADER = ("variant", "what", "how much")
SECONDS = " seconds"
"""What follows the name of a stage of the time account in account.csv."""
COUNTS: tuple[tuple[str, Callable[[VariantWork], int]], ...] = (
    ("runs", lambda work: work.runs),
    ("episodes in training", lambda work: work.episodes),
    ("turns in training", lambda work: work.turns),
    ("tokens sampled", lambda work: work.sampled_tokens),
    ("tokens read", lambda work: work.read_tokens),
    ("tokens trained on", lambda work: work.trained_tokens),
    ("tokens sampled in evaluation", lambda work: work.evaluation_tokens),
)


def tables(report: ReportData) -> dict[str, bytes]:
    """The files of the report's data, by name; a table without content is left out."""
    files = {
        DATA_FILE: report.to_json().encode(),
        TABLE_FILE: as_csv(TABLE_HEADER, table_rows(report)),
        CURVES_FILE: as_csv(CURVES_HEADER, curve_rows(report)),
        **metric_files(report),
    }
    if report.judgement is not None:
        files[VERDICTS_FILE] = as_csv(VERDICTS_HEADER, verdict_rows(report))
    if report.work:
        files[ACCOUNT_FILE] = as_csv(ACCOUNT_HEADER, _work_rows(report))
    return files


def headline_columns(report: ReportData) -> dict[str, str]:
    """The keys of the table's two most important columns: the first as `sampled`, and it over `greedy` episodes."""
    first = report.columns[0]
    greedy = [each.key for each in report.columns if each.heading == f"greedy {first.heading}"]
    return {"sampled": first.key, **({"greedy": greedy[0]} if greedy else {})}


def metric_files(report: ReportData) -> dict[str, bytes]:
    """By file name, the two most important numbers of each row over all of its runs."""
    headings = {"sampled": report.columns[0].heading}
    names = {headings.get(mode, mode): key for mode, key in headline_columns(report).items()}
    files: dict[str, bytes] = {}
    for row in (row for row in report.rows if row.kind != "went on"):
        values = {name: cell.value for name, key in names.items() if (cell := row.cells.get(key)) is not None}
        path = f"{METRICS_FOLDER}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', row.name)}"
        if f"{path}.json" in files:  # of a name that differs in other characters alone
            path += f"-{len(files) + 1}"
        files[f"{path}.json"] = (json.dumps(values) + "\n").encode()
    return files


def interval_data(interval: Interval) -> tuple[float, float | None, float | None, str, int, float]:
    """An interval as the fields of a CSV row: value, low, high, over, count, level."""
    return (interval.value, interval.low, interval.high, interval.over, interval.count, interval.level)


def table_rows(report: ReportData) -> list[tuple[object, ...]]:
    """The rows under `TABLE_HEADER`: every cell that has a value."""
    return [
        (row.name, row.kind, column.key, *interval_data(interval), interval.method)
        for row in report.rows
        for column in report.columns
        if (interval := row.cells.get(column.key)) is not None
    ]


def curve_rows(report: ReportData) -> list[tuple[object, ...]]:
    """The rows under `CURVES_HEADER`: every point of every curve."""
    return [
        (curve.metric, curve.variant, curve.seed, iteration, value)
        for curve in report.curves
        for iteration, value in curve.points
    ]


def verdict_rows(report: ReportData) -> list[tuple[object, ...]]:
    """The rows under `VERDICTS_HEADER`: all comparisons, sampled, greedy, and at the budget: see `comparison_rows`."""
    at_budget = None if report.costs is None or report.costs.at_budget is None else report.costs.at_budget.judgement
    judgements = [judgement for judgement in (report.judgement, report.greedy, at_budget) if judgement is not None]
    return [row for judgement in judgements for row in comparison_rows(judgement)]


def cost_rows(report: ReportData) -> list[tuple[object, ...]]:
    """The rows under `COSTS_HEADER`: by axis, each variant and each difference at the most that every run has spent."""
    return [
        (at.budget, at.spent, name, *interval_data(interval))
        for at in ([] if report.costs is None else report.costs.at_equal)
        for name, interval in [
            *at.shown.items(),
            *((f"{one} - {other}", interval) for one, other, interval in at.differences),
        ]
    ]


def comparison_rows(judgement: Judgement) -> list[tuple[object, ...]]:
    """The comparisons of a judgement: gains over the warm start first, then pairs of variants."""
    return [(judgement.measure, *(cell(each) for cell in COMPARISON.values())) for each in judgement.comparisons]


def _work_rows(report: ReportData) -> list[tuple[object, ...]]:
    """What the runs of each variant cost together and, of these, what each run that was ended early did."""
    ended = [] if report.outcomes is None else [run.work for run in report.outcomes.ended if run.work is not None]
    costs = [*report.work, *ended]
    counts = [(work.variant, name, count(work)) for work in costs for name, count in COUNTS]
    seconds = [(work.variant, f"{stage}{SECONDS}", value) for work in costs for stage, value in work.seconds.items()]
    return [*counts, *seconds]


def as_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as the content of a CSV file, UTF-8; every table that is written is written by this."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue().encode()


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column is the row's name."""

    name: str
    """One word, also the name of its file."""
    title: str
    columns: list[str]
    rows: list[list[str]]
    """One text per column. A cell may have several lines, the first its value; `to_csv` joins them into one."""
    notes: list[str] = field(default_factory=list)

    def with_values(self) -> TextTable:
        """The table without the columns that have no value in any row."""
        places = [place for place in range(len(self.columns)) if any(row[place] != UNDEFINED for row in self.rows)]
        columns, *rows = ([row[place] for place in places] for row in (self.columns, *self.rows))
        return replace(self, columns=columns, rows=rows)

    def to_csv(self) -> bytes:
        """The table as the content of a CSV file, with a header line and without title and notes."""
        heads = [column.replace("-\n", "") for column in self.columns]  # of a word that was broken
        header, *rows = ([" ".join(cell.split()) for cell in cells] for cells in (heads, *self.rows))
        return as_csv(header, rows)


def text_cell(interval: Interval | None, *, with_sign: bool = False) -> str:
    """The value, and on the next line its bounds or the reason why there are none.

    A single value stands alone: a note below the table says that there is no interval then.
    """
    if interval is None:
        return UNDEFINED
    value = signed(interval.value, 2) if with_sign else number(interval.value, 2)
    if interval.count == 1:
        return value
    because = (interval.absence or "").replace(": ", ":\n")
    return f"{value}\n{bounds(interval, 2) or because}"
