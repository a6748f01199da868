"""Markdown pages from the templates of a package; a name that a template does not know is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from turnwise.reporting import formatting
from turnwise.results.report_data import ReportData


def render(package: str, template: str, /, **values: object) -> str:
    """A template of a package with these values.

    Raises jinja2's UndefinedError for a name that the template does not know.
    """
    return templates(package).get_template(template).render(**values)


@cache
def templates(package: str) -> Environment:
    """A package's folder `templates`, with `table`, `cell` and the filters of `turnwise.reporting.formatting`."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=False,  # Markdown; what could break a table is escaped by `cell`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["table"] = table
    environment.filters |= {**formatting.FILTERS, "cell": cell, "code": lambda text: f"`{text}`"}
    return environment


def table(heading: Iterable[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, without a line break at its end."""
    names = list(heading)
    lines: list[Sequence[object]] = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(map(cell, cells))} |" for cells in lines)


def results_table(report: ReportData, columns: int | None = None) -> str:
    """The report's table in Markdown, with its first columns or all: values with their intervals."""
    table_columns = report.columns[:columns]
    rows = [
        [
            formatting.marked(report, row),
            *(formatting.with_bounds(row.cells.get(each.key), each.digits) for each in table_columns),
        ]
        for rows in report.row_groups()
        for row in rows
    ]
    return table(["", *(each.heading for each in table_columns)], rows)


def cell(content: object) -> str:
    """The content of a table's cell, in which a bar would begin the next one and a line break would end the table."""
    return " ".join(str(content).split()).replace("|", "\\|")
