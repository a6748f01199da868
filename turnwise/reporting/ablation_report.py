"""The report of an ablation as pandas tables and as figures that a notebook shows."""

from __future__ import annotations

import os
from dataclasses import astuple, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ConfigurationError
from turnwise.reporting.data.tables import (
    COSTS_HEADER,
    CURVES_HEADER,
    DATA_FILE,
    TABLE_HEADER,
    VERDICTS_HEADER,
    cost_rows,
    curve_rows,
    table_rows,
    verdict_rows,
)
from turnwise.reporting.formatting import heading, marked, with_bounds
from turnwise.reporting.html.report_files import PAGE_FILE
from turnwise.results.report_data import ReportData
from turnwise.statistics.until_decided import SettledComparison

if TYPE_CHECKING:
    import pandas as pd

    from turnwise.reporting.figures.drawing import Figure


ENDED_HEADER = (
    "variant",
    "seed",
    "iteration",
    "planned",
    "by",
    "sampled tokens",
    "trained tokens",
    "seconds",
    "message",
)


class AblationReport:
    """What an ablation found: the report's tables and figures. In a notebook it shows its table."""

    def __init__(self, data: ReportData, folder: Path | None) -> None:
        self.data, self._folder = data, folder

    @property
    def folder(self) -> Path:
        """The folder of the report's files. Raises ConfigurationError where none was to be written."""
        if self._folder is None:
            raise ConfigurationError(
                "a report must be written to have a folder; this one was not: give `to`", "TW-unwritten-report"
            )
        return self._folder

    @property
    def page(self) -> Path:
        """The report's page, which a browser opens."""
        return self.folder / PAGE_FILE

    def table(self) -> pd.DataFrame:
        """One row per row and column of the report's table: the value, the bounds of its interval, and over what."""
        return _frame(TABLE_HEADER, table_rows(self.data))

    def verdicts(self) -> pd.DataFrame:
        """One row per comparison: the difference with its interval, p, and the verdict. Empty with one seed."""
        return _frame(VERDICTS_HEADER, verdict_rows(self.data))

    def seeds(self) -> pd.DataFrame:
        """One row per comparison that seeds were added for: how and after how many it ended, and what one that is open
        would cost. Empty where seeds were listed.
        """
        race = self.data.race
        rows: list[tuple[object, ...]] = [] if race is None else [astuple(each) for each in race.comparisons]
        return _frame(tuple(each.name for each in fields(SettledComparison)), rows)

    def curves(self) -> pd.DataFrame:
        """One row per plotted metric, run and iteration."""
        return _frame(CURVES_HEADER, curve_rows(self.data))

    def costs(self) -> pd.DataFrame:
        """One row per axis of cost and variant, or difference of two: at the most that every run has spent."""
        return _frame(COSTS_HEADER, cost_rows(self.data))

    def ended(self) -> pd.DataFrame:
        """One row per run that a guard or an alarm ended: after which iteration, by what, and what it cost."""
        runs = [] if self.data.outcomes is None else self.data.outcomes.ended
        rows: list[tuple[object, ...]] = []
        for run in runs:
            work = run.work
            cost = (
                (None, None, None)
                if work is None
                else (work.sampled_tokens, work.trained_tokens, sum(work.seconds.values()))
            )
            rows.append((run.variant, run.seed, run.iteration, run.planned, run.by, *cost, run.message))
        return _frame(ENDED_HEADER, rows)

    @property
    def figures(self) -> dict[str, Figure]:
        """The report's figures by name; a notebook shows each, and `png()` and `svg()` give its file."""
        from turnwise.reporting.html.page import all_figures

        return {figure.name: figure for figure in all_figures(self.data)}

    def _repr_html_(self) -> str:
        columns = self.data.columns
        heads = "".join(f"<th>{escape(heading(each))}</th>" for each in columns)
        rows = []
        for row in self.data.rows:
            cells = [with_bounds(row.cells.get(each.key), each.digits) for each in columns]
            name = escape(marked(self.data, row))
            rows.append(f"<tr><th>{name}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
        return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def read_report(folder: str | os.PathLike[str]) -> AblationReport:
    """The report in a folder such as `results/credit`. Raises ConfigurationError where there is none."""
    path = Path(folder) / DATA_FILE
    if not path.is_file():
        raise ConfigurationError(
            f"a report's folder must hold {DATA_FILE}; found none in {folder}: run the ablation, which writes it to "
            "results/<name>, and finds in the store what is computed",
            "TW-missing-file",
        )
    return AblationReport(ReportData.from_json(path.read_text(encoding="utf-8")), Path(folder))


def _frame(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=list(header))
