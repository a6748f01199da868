"""The report: one offline HTML page, with its data (`story.json`), tables and figures as files next to it.

Each section of the page is a function of the `Story`; a section without content is left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from turnwise.reporting.data.report_data import ROW_KINDS, ReportColumn, Row, Story
from turnwise.reporting.figures import comparison
from turnwise.reporting.figures.history import endings_figure
from turnwise.reporting.formatting import UNDEFINED, basis, bounds, heading, number
from turnwise.reporting.html import token_heat_map
from turnwise.reporting.html.history_sections import (
    account_section,
    alarms_section,
    curves_sections,
    endings_section,
    section,
    work_rows,
)
from turnwise.reporting.html.markup import Markup, join, tag, text
from turnwise.reporting.html.samples import samples_section
from turnwise.reporting.html.style import STYLE
from turnwise.reporting.html.verdict_section import CSV_HEADER, profile_figure, verdict_rows, verdict_section
from turnwise.store.atomic_write import write_together

PAGE_FILE = "report.html"
STORY_FILE = "story.json"
TABLE_FILE = "table.csv"
CURVES_FILE = "curves.csv"
VERDICTS_FILE = "verdicts.csv"
ACCOUNT_FILE = "account.csv"
FIGURES_FOLDER = "figures"

# The browser loads nothing and runs no script, whatever a policy or a world wrote: a second defence after escaping.
_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_BESIDE = (
    f"Beside this page: every figure as PNG and its data as CSV in {FIGURES_FOLDER}/, the tables as {TABLE_FILE}, "
    f"{VERDICTS_FILE} and {ACCOUNT_FILE}, the curves as {CURVES_FILE}, everything that is told here in {STORY_FILE}."
)
_CURVES_HEADER = ("metric", "variant", "seed", "iteration", "value")
_TABLE_HEADER = ("row", "kind", "column", "value", "low", "high", "over", "count", "level", "method")


def write_report(story: Story, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
    """Write `report.html`, `story.json`, tables as CSV and `figures/` into `folder`; each figure is a PNG and a CSV.

    The same story gives the same bytes. `beside` has further files by name. All files are put in place together; files
    of a previous report that this one does not have are removed. Other files in the folder stay.
    """
    drawn = all_figures(story)
    files = {
        PAGE_FILE: page(story).encode(),
        STORY_FILE: story.to_json().encode(),
        TABLE_FILE: _csv(_TABLE_HEADER, _table_rows(story)),
        CURVES_FILE: _csv(_CURVES_HEADER, _curve_rows(story)),
    }
    if story.judgement is not None:
        files[VERDICTS_FILE] = _csv(CSV_HEADER, verdict_rows(story.judgement))
    if story.work:
        files[ACCOUNT_FILE] = _csv(("variant", "what", "how much"), work_rows(story))
    for figure in drawn:
        files[f"{FIGURES_FOLDER}/{figure.name}.png"] = figure.png()
        files[f"{FIGURES_FOLDER}/{figure.name}.csv"] = _csv(figure.header, figure.data)
    files |= beside or {}
    former = [path.name for path in (folder / FIGURES_FOLDER).glob("*") if path.suffix in (".png", ".csv")]
    write_together(folder, files, [VERDICTS_FILE, ACCOUNT_FILE, *(f"{FIGURES_FOLDER}/{name}" for name in former)])


def all_figures(story: Story) -> list[comparison.Figure]:
    """Every figure of the report."""
    account = [comparison.time_account(story)] if story.seconds else []
    told = [endings for endings in story.endings if endings.shares]
    endings = [endings_figure(told)] if told else []
    profiles = [profile_figure(story)] if story.judgement is not None and story.judgement.profiles else []
    return [*comparison.comparisons(story), *profiles, *comparison.learning_curves(story), *endings, *account]


def page(story: Story) -> str:
    """The whole page as text."""
    legend = _legend(_variant_swatch(name, style) for name, style in comparison.styles(story).items())
    sections = [
        _comparison_section(story),
        verdict_section(story, legend, _figure_grid),
        *curves_sections(story, legend, _figure_grid),
        endings_section(story, _figure_grid),
        alarms_section(story),
        account_section(story, _figure_grid),
        samples_section(story),
        _lineage_section(story),
        _notes_section(story),
    ]
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", story.title),
        tag("style", Markup(STYLE + token_heat_map.STYLE)),
    )
    header = tag(
        "header",
        tag("p", "Turnwise report", class_="eyebrow"),
        tag("h1", story.title),
        tag("p", story.description, class_="lead"),
    )
    body = tag("body", tag("main", header, *(section for section in sections if section)))
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _comparison_section(story: Story) -> Markup:
    return section(
        "Comparison",
        _table(story),
        *(tag("p", sentence, class_="fine") for sentence in basis(story)),
        _column_descriptions(story),
        _comparison_figures(story),
    )


def _comparison_figures(story: Story) -> Markup:
    plots = comparison.comparisons(story)
    if not plots:
        return Markup()
    explanation = (
        "Dot: value. Bar: interval. Strokes below: the single seeds. Vertical lines: the players of reference. "
        "Arrows in headings: which way is better."
    )
    swatches = (_reference_swatch(name, dashes) for name, dashes in comparison.reference_dashes(story).items())
    return join(tag("p", explanation, class_="fine before-figures"), _legend(swatches), _figure_grid(plots))


def _table(story: Story) -> Markup:
    headings = [tag("th", ""), *(tag("th", heading(column), scope="col") for column in story.columns)]
    bodies = [
        tag("tbody", *(_table_row(row, story.columns) for row in story.rows_of(kind)))
        for kind in ROW_KINDS
        if story.rows_of(kind)
    ]
    return tag("table", tag("thead", tag("tr", *headings)), *bodies, class_="comparison")


def _table_row(row: Row, columns: Sequence[ReportColumn]) -> Markup:
    note = tag("span", row.note, class_="note") if row.note else ""
    return tag("tr", tag("th", row.name, note, scope="row"), *(_table_cell(row, column) for column in columns))


def _table_cell(row: Row, column: ReportColumn) -> Markup:
    interval = row.cells.get(column.key)
    if interval is None:
        return tag("td", tag("span", UNDEFINED, class_="value"), data_heading=heading(column))
    limits = bounds(interval, column.digits)
    return tag(
        "td",
        tag("span", number(interval.value, column.digits), class_="value"),
        tag("span", limits, class_="bounds") if limits else "",
        data_heading=heading(column),
        title=interval.absence,
    )


def _column_descriptions(story: Story) -> Markup:
    described = [column for column in story.columns if column.description]
    if not described:
        return Markup()
    terms = [join(tag("dt", column.heading), tag("dd", column.description)) for column in described]
    return tag("dl", *(tag("div", term) for term in terms), class_="columns")


def _figure_grid(drawn: Sequence[comparison.Figure], alone: bool = False) -> Markup:
    """The figures in equal columns; with `alone` in one column, for a wide figure."""
    cells = [
        tag(
            "figure",
            Markup(figure.svg().replace("<svg ", f'<svg role="img" aria-label="{text(figure.description)}" ', 1)),
        )
        for figure in drawn
    ]
    return tag("div", *cells, class_="figures single" if alone else "figures")


def _legend(swatches: Iterable[Markup]) -> Markup:
    return tag("ul", *(tag("li", swatch) for swatch in swatches), class_="legend")


def _variant_swatch(name: str, style: comparison.LineStyle) -> Markup:
    return join(_line(style.colour, 2.4, style.dashes, comparison.MARKER_SHAPES[style.marker]), name)


def _reference_swatch(name: str, dashes: tuple[float, ...]) -> Markup:
    return join(_line(comparison.GREY, 1.5, dashes, ""), name)


def _line(colour: str, width: float, dashes: tuple[float, ...], shape: str) -> Markup:
    lengths = " ".join(f"{length * width:g}" for length in dashes)
    drawn = f'<path d="M0 7H44" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{lengths}"/>'
    marker = f'<path d="{shape}" fill="{colour}"/>' if shape else ""
    return Markup(f'<svg class="swatch" width="44" height="14" aria-hidden="true">{drawn}{marker}</svg>')


def _lineage_section(story: Story) -> Markup | None:
    if not story.lineage:
        return None
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in story.lineage]
    return section("Lineage", tag("dl", *rows, class_="lineage"))


def _notes_section(story: Story) -> Markup:
    return section("Notes", tag("ul", *(tag("li", note) for note in [*story.notes, _BESIDE]), class_="notes"))


def _table_rows(story: Story) -> list[tuple[object, ...]]:
    return [
        (row.name, row.kind, column.key, *comparison.interval_data(interval), interval.method)
        for row in story.rows
        for column in story.columns
        if (interval := row.cells.get(column.key)) is not None
    ]


def _curve_rows(story: Story) -> list[tuple[object, ...]]:
    return [
        (curve.metric, curve.variant, curve.seed, iteration, value)
        for curve in story.curves
        for iteration, value in curve.points
    ]


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue().encode()
