"""A page of `docs/science/` in Markdown: claims, verdicts and their evidence, with figures as files next to it.

The page is a function of the claims and the recorded runs: the same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pydantic import Field

from turnwise.reporting.baseline_table import markdown_table, told
from turnwise.reporting.data.report_data import ROW_KINDS, SHARE, Curve, ReportColumn, ReportData, Row
from turnwise.reporting.figures.drawing import Figure, styles, wrapped
from turnwise.reporting.figures.learning_curves import draw_variant
from turnwise.reporting.formatting import UNDEFINED, duration, number, of_processes, signed
from turnwise.statistics import Interval
from turnwise.statistics.curves import AtEqualBudget
from turnwise.studies.claim_verdicts import LEVEL, DecidedClaim, decide
from turnwise.studies.claims import ClaimsPage, PlannedAblation
from turnwise.studies.tuning import chosen_rates, tried_rates
from turnwise.world import SPLITS

COLUMNS_OF_CURVES = 3
COMMIT_DIGITS = 12


@dataclass(frozen=True)
class Record:
    """The record of an ablation that was run, as stored in `docs/science/data/`."""

    digest: str
    """Digest of everything that was computed."""
    report: Annotated[ReportData, Field(alias="story")]
    """The report data, without sampled trajectories. The records in `docs/science/data/` call it `story`."""
    budgets: tuple[AtEqualBudget, ...] = ()
    """Scores of the variants at equal cost."""


def page(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> str:
    """The page as Markdown. `records` holds the ablations that were run, by name."""
    decisions = decide(claims, {ablation: record.report for ablation, record in records.items()})
    lines = [
        f"# {claims.title}",
        "",
        f"<!-- Written by `turnwise science {name}` from the runs in data/; do not edit. -->",
        "",
        claims.introduction.strip(),
        "",
        *_verdicts(claims, decisions),
        *_evidence(decisions),
        *(line for ablation, record in records.items() for line in _ablation(name, ablation, claims, record)),
        *_not_run(claims, records),
    ]
    return "\n".join(lines) + "\n"


def figures(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> list[Figure]:
    """One figure for each ablation that was run, except tunings: the curves that `claims.curves` names."""
    return [
        curves_figure(_figure_name(name, ablation), record.report, claims.curves)
        for ablation, record in records.items()
        if claims.ablations[ablation].tunes is None
    ]


def curves_figure(name: str, report: ReportData, metrics: Sequence[str]) -> Figure:
    """A figure of several metrics of one ablation: mean over seeds, with a band from lowest to highest."""
    chosen = _shown(metrics, report)
    curves = {metric: [curve for curve in report.curves if curve.metric == metric] for metric in chosen}
    look = styles(report)

    def draw(legend: bool) -> Drawing:
        rows = -(-len(chosen) // COLUMNS_OF_CURVES)
        size = (3.3 * min(len(chosen), COLUMNS_OF_CURVES), 2.3 * rows + 0.4)
        drawing = Drawing(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
        for place, metric in enumerate(chosen, start=1):
            axes = drawing.add_subplot(rows, min(len(chosen), COLUMNS_OF_CURVES), place)
            axes.set_axisbelow(True)
            for variant, seeds in _by_variant(curves[metric]).items():
                draw_variant(axes, seeds, look[variant])
            axes.set_title(wrapped(_title(curves[metric][0])))
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            if curves[metric][0].unit == SHARE:
                axes.set_ylim(-0.03, 1.03)
        handles = [
            Line2D([], [], color=style.colour, dashes=style.dashes, marker=style.marker, markersize=4, label=variant)
            for variant, style in look.items()
        ]
        drawing.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
        return drawing

    return Figure(
        name,
        f"{', '.join(curves[metric][0].heading for metric in chosen)} over the iterations of {report.title}.",
        ("metric", "variant", "seed", "iteration", "value"),
        [(c.metric, c.variant, c.seed, *point) for metric in chosen for c in curves[metric] for point in c.points],
        draw,
    )


def _title(curve: Curve) -> str:
    """The title of a curve, with the task set for metrics of validation and training episodes."""
    episodes = {"validation": ", validation panel", "rollout": ", training tasks"}
    return curve.heading + episodes.get(curve.metric.partition("/")[0], "")


def _verdicts(claims: ClaimsPage, decisions: Sequence[DecidedClaim]) -> list[str]:
    rows = [[each.claim.claim, each.claim.source, f"**{each.verdict}**"] for each in decisions]
    return [
        "## Verdicts",
        "",
        *markdown_table(["claim", f"in {claims.paper}", "here"], rows),
        "",
        f"A claim *held* when every relation that it needs has a corrected p under {LEVEL:g} on the claimed side; it "
        "is *not held* when one has it on the other side; else it is *not decided at this scale*.",
        "",
    ]


def _evidence(decisions: Sequence[DecidedClaim]) -> list[str]:
    rows = [
        [
            evidence.relationship.sentence,
            evidence.relationship.measure,
            ", ".join(evidence.relationship.ablations),
            _difference(evidence.estimate),
            "fewer than 2" if evidence.estimate is None else str(evidence.estimate.count),
            _p(evidence.p),
            _p(evidence.corrected),
        ]
        for decision in decisions
        for evidence in decision.evidence
    ]
    if not rows:
        return []
    heading = ["relation", "measure", "ablation", "difference (95 % interval over seeds)", "seeds", "p", "corrected p"]
    return [
        "## What they rest on",
        "",
        *markdown_table(heading, rows),
        "",
        "Runs with the same seed draw the same tasks and are compared in pairs: Student's t on the differences; for "
        "*varies less than* Pitman and Morgan's test, and the difference is that of the standard deviations; for "
        "*falls before* it is the iterations between two falls below half of the first value. All p values of this "
        "page are corrected together by Holm's rule.",
        "",
    ]


def _ablation(name: str, ablation: str, claims: ClaimsPage, record: Record) -> list[str]:
    report, planned = record.report, claims.ablations[ablation]
    lineage = dict(report.lineage)
    panels = ", ".join(f"{split} `{lineage[f'{split} panel']}`" for split in SPLITS)
    return [
        f"## `{ablation}`",
        "",
        planned.about,
        "",
        *(_rates(report) if planned.tunes is not None else _results(name, ablation, claims, record)),
        f"    {command(planned)}",
        "",
        f"Digest of everything: `{record.digest}`, by the code of {_code(lineage)}; panels: {panels}. It took "
        f"{duration(sum(report.seconds.values()))}{of_processes(report)} on the machine that ran it.",
        "",
        f"<details><summary>Platform</summary><code>{lineage['platform']}</code></details>",
        "",
        *(f"* {note}" for note in report.notes),
        "",
    ]


def _code(lineage: Mapping[str, str]) -> str:
    changes = "" if lineage["uncommitted"] == "none" else " with changes that were not committed"
    return f"commit `{lineage['commit'][:COMMIT_DIGITS]}`{changes}"


def _results(name: str, ablation: str, claims: ClaimsPage, record: Record) -> list[str]:
    return [
        f"![{', '.join(_shown(claims.curves, record.report))}]({_figure_name(name, ablation)}.png)",
        "",
        *_table(record.report),
        "",
        *_budgets(record.budgets),
    ]


def _budgets(found: Sequence[AtEqualBudget]) -> list[str]:
    if not found:
        return []
    rows = [[variant, *(told(each.shown[variant], 2) for each in found)] for variant in found[0].shown]
    return [
        "At the same cost, by the last evaluation on the validation panel that the budget pays for. A budget is the "
        "most that every run has spent; tokens are those sampled, and seconds leave evaluations out.",
        "",
        *markdown_table(["", *(each.heading for each in found)], rows),
        "",
    ]


def _rates(report: ReportData) -> list[str]:
    """The table of tried and chosen learning rates; test results are left out, since they do not affect the choice."""
    tried = tried_rates(report)
    chosen = chosen_rates(tried)
    rates = sorted({rate for of_variant in tried.values() for rate in of_variant})
    rows = [
        [variant, *(_marked(of_variant.get(rate), rate == chosen[variant]) for rate in rates)]
        for variant, of_variant in tried.items()
    ]
    return [
        "Success on the validation panel at the end, by learning rate; the chosen one is bold.",
        "",
        *markdown_table(["", *(f"{rate:g}" for rate in rates)], rows),
        "",
    ]


def _marked(value: float | None, is_chosen: bool) -> str:
    if value is None:
        return UNDEFINED
    return f"**{number(value, 3)}**" if is_chosen else number(value, 3)


def _table(report: ReportData) -> list[str]:
    rows = [
        [row.name, *(_cell(row, column) for column in report.columns)]
        for kind in ROW_KINDS
        for row in report.rows_of(kind)
    ]
    return markdown_table(["", *(column.heading for column in report.columns)], rows)


def _cell(row: Row, column: ReportColumn) -> str:
    interval = row.cells.get(column.key)
    return UNDEFINED if interval is None else told(interval, column.digits)


def _not_run(claims: ClaimsPage, records: Mapping[str, Record]) -> list[str]:
    missing = {ablation: planned for ablation, planned in claims.ablations.items() if ablation not in records}
    if not missing:
        return []
    rows = [
        [f"`{ablation}`", "core" if planned.core else "full grid", planned.about, f"`{command(planned)}`"]
        for ablation, planned in missing.items()
    ]
    return ["## What was not run", "", *markdown_table(["ablation", "part of", "what it adds", "command"], rows), ""]


def command(planned: PlannedAblation) -> str:
    """The command line that runs an ablation."""
    return " ".join(["turnwise ablation", *planned.overlays])


def _difference(estimate: Interval | None) -> str:
    if estimate is None:
        return UNDEFINED
    if estimate.low is None or estimate.high is None:
        return signed(estimate.value, 3)
    return f"{signed(estimate.value, 3)} ({signed(estimate.low, 3)} to {signed(estimate.high, 3)})"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else number(value, 3)


def _figure_name(name: str, ablation: str) -> str:
    return f"{name}-{ablation}" if ablation != name else name


def _shown(metrics: Sequence[str], report: ReportData) -> list[str]:
    """The metrics for which the ablation has curves."""
    return [metric for metric in metrics if any(curve.metric == metric for curve in report.curves)]


def _by_variant(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    return {name: [c for c in curves if c.variant == name] for name in dict.fromkeys(c.variant for c in curves)}
