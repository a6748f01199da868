"""A page of `docs/science/` in Markdown: claims, verdicts and their evidence, with figures as files next to it.

The page is a function of the claims and the recorded runs: the same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lab.science.claim_figures import claim_figure
from lab.science.claim_verdicts import LEVEL, DecidedClaim, decide
from lab.science.claims import ClaimsPage
from lab.science.claims_power import costs_of_deciding, open_relations, planned_seeds
from lab.science.tuning import best_rates, tried_rates
from turnwise.reporting.figures.drawing import Figure, styles, wrapped
from turnwise.reporting.figures.learning_curves import draw_variant, ended_handle, ended_seeds
from turnwise.reporting.formatting import UNDEFINED, duration, marked, number, process_note, with_bounds
from turnwise.reporting.markdown import render
from turnwise.results.report_data import SHARE, Curve, ReportData
from turnwise.statistics.curves import AtEqualBudget
from turnwise.world import SPLITS

COLUMNS_OF_CURVES = 3
COMMIT_DIGITS = 12


@dataclass(frozen=True)
class Record:
    """The record of an ablation that was run, as stored in `docs/science/data/`."""

    digest: str
    """Digest of everything that was computed."""
    report: ReportData
    """The report data, without sampled trajectories."""
    budgets: tuple[AtEqualBudget, ...] = ()
    """Scores of the variants at equal cost."""


def page(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> str:
    """The page as Markdown. `records` holds the ablations that were run, by name."""
    reports = {ablation: record.report for ablation, record in records.items()}
    decisions = decide(claims, reports)
    still_open = open_relations(claims, decisions, reports)
    return render(
        "lab",
        "science.md.jinja",
        name=name,
        claims=claims,
        level=LEVEL,
        decisions=decisions,
        claim_figures=_claim_figures(name, decisions, records),
        evidence=[evidence for decided in decisions for evidence in decided.evidence],
        planned_seeds=planned_seeds(claims, reports),
        open_relations=still_open,
        costs_of_deciding=costs_of_deciding(decisions, still_open),
        ablations=[_ablation(name, ablation, claims, record) for ablation, record in records.items()],
        missing={ablation: planned for ablation, planned in claims.ablations.items() if ablation not in records},
    )


def _ablation(name: str, ablation: str, claims: ClaimsPage, record: Record) -> dict[str, Any]:
    """What the page shows of one ablation that was run."""
    report = record.report
    lineage = dict(report.lineage)
    return {
        "name": ablation,
        "planned": claims.ablations[ablation],
        "curves": _curve_metrics(claims.curves, report),
        "figure": _figure_name(name, ablation),
        "rates": _rates(report) if claims.ablations[ablation].tunes is not None else None,
        "results": _results(report),
        "budgets": _budgets(record.budgets) if record.budgets else None,
        # Records of former versions had the last evaluation within a budget, and no differences.
        "interpolated": any(each.differences for each in record.budgets),
        "notes": [*([] if report.outcomes is None else report.outcomes.sentences()), *report.notes],
        "digest": record.digest,
        "commit": lineage["commit"][:COMMIT_DIGITS],
        "uncommitted": lineage["uncommitted"] != "none",
        "task_sets": ", ".join(f"{split} `{lineage[f'{split} task set']}`" for split in SPLITS),
        "platform": lineage["platform"],
        "duration": f"{duration(sum(report.seconds.values()))}{process_note(report)}",
    }


Table = tuple[list[str], list[list[str]]]
"""Heading and rows of a table."""


def _rates(report: ReportData) -> Table:
    """The tried and chosen learning rates; test results are left out, since they do not affect the choice."""
    tried = tried_rates(report)
    best = best_rates(tried)
    rates = sorted({rate for of_variant in tried.values() for rate in of_variant})
    rows = []
    for variant, successes in tried.items():
        cells = {rate: number(success, 3) for rate, success in successes.items()}
        cells[best[variant]] = f"**{cells[best[variant]]}**"
        rows.append([variant, *(cells.get(rate, UNDEFINED) for rate in rates)])
    return ["", *(f"{rate:g}" for rate in rates)], rows


def _results(report: ReportData) -> Table:
    rows = [
        [marked(report, row), *(with_bounds(row.cells.get(column.key), column.digits) for column in report.columns)]
        for rows in report.row_groups()
        for row in rows
    ]
    return ["", *(column.heading for column in report.columns)], rows


def _budgets(budgets: Sequence[AtEqualBudget]) -> Table:
    rows = [[variant, *(with_bounds(each.shown[variant], 2) for each in budgets)] for variant in budgets[0].shown]
    return ["", *(each.heading for each in budgets)], rows


def figures(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> list[Figure]:
    """A figure for each claim that was tried, and one for each ablation that was run, except tunings: its curves."""
    decisions = decide(claims, {ablation: record.report for ablation, record in records.items()})
    curves = [
        curves_figure(_figure_name(name, ablation), record.report, claims.curves)
        for ablation, record in records.items()
        if claims.ablations[ablation].tunes is None
    ]
    return [*(figure for figure in _claim_figures(name, decisions, records) if figure is not None), *curves]


def _claim_figures(name: str, decisions: Sequence[DecidedClaim], records: Mapping[str, Record]) -> list[Figure | None]:
    headings = {curve.metric: curve.heading for record in records.values() for curve in record.report.curves}
    return [claim_figure(name, place, decided, headings) for place, decided in enumerate(decisions, start=1)]


def curves_figure(name: str, report: ReportData, metrics: Sequence[str]) -> Figure:
    """A figure of several metrics of one ablation: mean over seeds, with a band from lowest to highest."""
    displayed = _curve_metrics(metrics, report)
    curves = {metric: [curve for curve in report.curves if curve.metric == metric] for metric in displayed}
    look, ended = styles(report), ended_seeds(report)

    def draw(legend: bool) -> Drawing:
        rows = -(-len(displayed) // COLUMNS_OF_CURVES)
        size = (3.3 * min(len(displayed), COLUMNS_OF_CURVES), 2.3 * rows + 0.4)
        drawing = Drawing(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
        for place, metric in enumerate(displayed, start=1):
            axes = drawing.add_subplot(rows, min(len(displayed), COLUMNS_OF_CURVES), place)
            axes.set_axisbelow(True)
            for variant in dict.fromkeys(curve.variant for curve in curves[metric]):
                of_variant = [curve for curve in curves[metric] if curve.variant == variant]
                draw_variant(axes, of_variant, look[variant], ended.get(variant, ()))
            axes.set_title(wrapped(_title(curves[metric][0])))
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            if curves[metric][0].unit == SHARE:
                axes.set_ylim(-0.03, 1.03)
        handles = [
            Line2D([], [], color=style.colour, dashes=style.dashes, marker=style.marker, markersize=4, label=variant)
            for variant, style in look.items()
        ]
        handles += [ended_handle()] if ended else []
        drawing.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
        return drawing

    return Figure(
        name,
        f"{', '.join(curves[metric][0].heading for metric in displayed)} over the iterations of {report.title}.",
        ("metric", "variant", "seed", "iteration", "value"),
        [(c.metric, c.variant, c.seed, *point) for metric in displayed for c in curves[metric] for point in c.points],
        draw,
    )


def _title(curve: Curve) -> str:
    """The title of a curve, with the task set for metrics of validation and training episodes."""
    episodes = {"validation": ", validation task set", "rollout": ", training tasks"}
    return curve.heading + episodes.get(curve.metric.partition("/")[0], "")


def _figure_name(name: str, ablation: str) -> str:
    return f"{name}-{ablation}" if ablation != name else name


def _curve_metrics(metrics: Sequence[str], report: ReportData) -> list[str]:
    """The metrics for which the ablation has curves."""
    return [metric for metric in metrics if any(curve.metric == metric for curve in report.curves)]
