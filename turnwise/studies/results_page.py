"""The page on what small policies learn: baseline policies, warm start and trained policy of every world, as Markdown.

The record is a JSON file with one line for each world and variant that was run, taken from an ablation's report data.
The page is a function of the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from turnwise.reporting.baseline_table import json_lines, markdown_table, told
from turnwise.reporting.data.report_data import ReportData, Row
from turnwise.reporting.formatting import UNDEFINED
from turnwise.statistics import Interval

RECORD_FILE, PAGE_FILE = "worlds-learning.json", "worlds-learning.md"


@dataclass(frozen=True)
class Lesson:
    """The result of one variant in one world."""

    experiment: str
    """The name of the configuration overlay, which is the world's name if the world has only one overlay."""
    variant: str
    measure: str
    """The metric of the four scores: the heading of the first column of the world's table."""
    random: Interval | None
    warm_start: Interval | None
    trained: Interval | None
    oracle: Interval | None
    """None if the world has no oracle."""
    iterations: int
    digest: str
    """Digest of everything that the ablation computed."""

    @property
    def verdict(self) -> str:
        """`higher` or `lower` if the trained mean lies outside the warm start's interval, else `no difference seen`.

        Without an interval the values themselves are compared; `UNDEFINED` if one of them is missing.
        """
        if self.warm_start is None or self.trained is None:
            return UNDEFINED
        start, end = self.warm_start, self.trained.value
        if start.low is not None and start.high is not None and start.low <= end <= start.high:
            return "no difference seen"
        return "higher" if end > start.value else "lower" if end < start.value else "no difference seen"


def lessons(experiment: str, report: ReportData, digest: str) -> list[Lesson]:
    """The record's lines of one ablation, one per variant. `digest` is that of everything that it computed."""
    column = report.columns[0]
    rows = {row.name: row for row in report.rows if row.kind != "variant"}

    def of(row: Row | None) -> Interval | None:
        return None if row is None else row.cells.get(column.key)

    return [
        Lesson(
            experiment,
            row.name,
            column.heading,
            of(rows.get("random")),
            of(rows.get("warm start")),
            of(row),
            of(rows.get("oracle")),
            max(
                (point for curve in report.curves if curve.variant == row.name for point, _ in curve.points), default=0
            ),
            digest,
        )
        for row in report.rows
        if row.kind == "variant"
    ]


def write_lessons(found: Sequence[Lesson]) -> str:
    """The record as JSON text."""
    return json_lines(found)


def read_lessons(text: str) -> list[Lesson]:
    """The record that `write_lessons` wrote. Raises pydantic's ValidationError for other text."""
    return TypeAdapter(list[Lesson]).validate_json(text)


def page(found: Sequence[Lesson], missing: Sequence[str] = ()) -> str:
    """The whole page as Markdown. `missing`: experiments without a recorded result."""
    heading = ["world", "rule", "measure", "random", "warm start", "after RL", "oracle", "iterations", "after RL is"]
    rows = [
        [
            f"`{line.experiment}`",
            line.variant,
            line.measure,
            *(_told(cell) for cell in (line.random, line.warm_start, line.trained, line.oracle)),
            str(line.iterations),
            line.verdict,
        ]
        for line in found
    ]
    digests = [[f"`{line.experiment}`", f"`{line.digest[:16]}`"] for line in found]
    made_of = ["## Digests of what was made", "", *markdown_table(["world", "digest"], _once(digests))]
    named = ", ".join(f"`{name}`" for name in missing)
    not_yet = [f"Not recorded yet: {named}.", ""] if missing else []
    return "\n".join([INTRODUCTION, *markdown_table(heading, rows), "", *not_yet, *made_of, ""])


INTRODUCTION = """# What small policies learn on each world

Made by `turnwise lessons` from the runs of `experiments/worlds/*.yaml` (`make demo WORLD=NAME` repeats one); a change
here is lost. A policy of half a million parameters learns from demonstrations of a noisy oracle, and then by
reinforcement for a few iterations, in some minutes on a CPU. Test panel, sampled replies; in brackets the 95 % interval
over tasks, or over seeds where there are several. The last column says whether the trained policy's mean lies outside
the warm start's interval. So few iterations show that the chain runs and which way it moves, not how far it goes.
"""


def _told(interval: Interval | None) -> str:
    return UNDEFINED if interval is None else told(interval, 2)


def _once(rows: Sequence[list[str]]) -> list[list[str]]:
    return [row for place, row in enumerate(rows) if row not in rows[:place]]
