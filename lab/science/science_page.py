"""A page of `docs/science/` in Markdown: claims, verdicts and their evidence, with figures as files next to it.

The page is a function of the claims and the recorded runs: the same records give the same bytes.

A recorded ablation is not run again unless it is named. Even then cached stages are not recomputed, and an interrupted
ablation is resumed.

Both tables use the level of the correction's first step, `LEVEL` divided by the number of the page's relations, as if a
relation had the smallest p of all: nobody knows beforehand where it will stand.

Of each claim a figure shows its verdict, and where the differences that it rests on lie.
Each relation has a band of its own. The claimed side is shaded, a dashed line stands at the difference that was stated
to be worth having, strokes are single seeds, and the bar is the 95 % interval of their mean. So a claim that is held
has its bar within the shade, and one that is too small to matter has it short of the dashed line.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pydantic import TypeAdapter
from rich.console import Console
from scipy import special

from flows.commands.progress_line import showing_progress
from flows.python.running import ablation as run_ablation
from flows.runtime.server import keep_finished_runs
from lab.science.claim_verdicts import LEVEL, DecidedClaim, Evidence, Verdict, decide
from lab.science.claims import OF_MEANS, ClaimsPage, PlannedAblation, PlannedPower, known_claims
from lab.science.tuning import MEASURE, best_rates, tried_rates
from turnwise.data.outcomes import LeftOut
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.project import project_root
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, Figure, draw_strokes, styles, wrapped
from turnwise.reporting.figures.learning_curves import draw_variant, ended_handle, ended_seeds
from turnwise.reporting.formatting import UNDEFINED, duration, number, process_note, with_bounds
from turnwise.reporting.markdown import render, results_table
from turnwise.results.report_data import SHARE, Curve, ReportData
from turnwise.statistics.curves import AtEqualBudget
from turnwise.statistics.power import MOST_SEEDS, seeds_to_correlate, seeds_to_decide, smallest_decided
from turnwise.statistics.sequential import looks_until
from turnwise.store.atomic_write import write_whole
from turnwise.store.default import use_storage
from turnwise.training_runs.state import require_none
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
    looks: tuple[int, ...] = ()
    """Where seeds were added until decided: the numbers of seeds at which was looked, up to the most."""


def page(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> str:
    """The page as Markdown. `records` holds the ablations that were run, by name."""
    reports = {ablation: record.report for ablation, record in records.items()}
    decisions = decide_records(claims, records)
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
        looked=[ablation for ablation, record in records.items() if record.looks],
        planned_seeds=planned_seeds(claims, reports),
        open_relations=still_open,
        costs_of_deciding=costs_of_deciding(decisions, still_open),
        ablations=[_ablation(name, ablation, claims, record) for ablation, record in records.items()],
        missing={ablation: planned for ablation, planned in claims.ablations.items() if ablation not in records},
    )


def decide_records(claims: ClaimsPage, records: Mapping[str, Record]) -> list[DecidedClaim]:
    """The decision for each claim, from the records of the ablations that were run."""
    return decide(
        claims,
        {ablation: record.report for ablation, record in records.items()},
        {ablation: record.looks for ablation, record in records.items() if record.looks},
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
        "results": results_table(report),
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
    successes_by_variant = tried_rates(report)
    best = best_rates(successes_by_variant)
    rates = sorted({rate for successes in successes_by_variant.values() for rate in successes})
    rows = []
    for variant, successes in successes_by_variant.items():
        cells = {rate: number(success, 3) for rate, success in successes.items()}
        cells[best[variant]] = f"**{cells[best[variant]]}**"
        rows.append([variant, *(cells.get(rate, UNDEFINED) for rate in rates)])
    return ["", *(f"{rate:g}" for rate in rates)], rows


def _budgets(budgets: Sequence[AtEqualBudget]) -> Table:
    rows = [[variant, *(with_bounds(each.shown[variant], 2) for each in budgets)] for variant in budgets[0].shown]
    return ["", *(each.heading for each in budgets)], rows


def figures(name: str, claims: ClaimsPage, records: Mapping[str, Record]) -> list[Figure]:
    """A figure for each claim that was tried, and one for each ablation that was run, except tunings: its curves."""
    decisions = decide_records(claims, records)
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
    look, seeds_by_variant = styles(report), ended_seeds(report)

    def draw(legend: bool) -> Drawing:
        rows = -(-len(displayed) // COLUMNS_OF_CURVES)
        size = (3.3 * min(len(displayed), COLUMNS_OF_CURVES), 2.3 * rows + 0.4)
        drawing = Drawing(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
        for place, metric in enumerate(displayed, start=1):
            axes = drawing.add_subplot(rows, min(len(displayed), COLUMNS_OF_CURVES), place)
            axes.set_axisbelow(True)
            for variant in dict.fromkeys(curve.variant for curve in curves[metric]):
                variant_curves = [curve for curve in curves[metric] if curve.variant == variant]
                draw_variant(axes, variant_curves, look[variant], seeds_by_variant.get(variant, ()))
            axes.set_title(_title(curves[metric][0]))
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            if curves[metric][0].unit == SHARE:
                axes.set_ylim(-0.03, 1.03)
        handles = [
            Line2D([], [], color=style.colour, dashes=style.dashes, marker=style.marker, markersize=4, label=variant)
            for variant, style in look.items()
        ]
        handles += [ended_handle()] if seeds_by_variant else []
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
    """The title of a curve, with the tasks in a line of their own for metrics of validation and training episodes."""
    episodes = {"validation": "\non the validation tasks", "rollout": "\non the training tasks"}
    return wrapped(curve.heading) + episodes.get(curve.metric.partition("/")[0], "")


def _figure_name(name: str, ablation: str) -> str:
    return f"{name}-{ablation}" if ablation != name else name


def _curve_metrics(metrics: Sequence[str], report: ReportData) -> list[str]:
    """The metrics for which the ablation has curves."""
    return [metric for metric in metrics if any(curve.metric == metric for curve in report.curves)]


PAGES = Path("docs/science")


def write_page(name: str, run: Sequence[str], processes: int | None = None) -> None:
    """Run the named ablations of a page (`core`: all of its core) and write it from all that are recorded.

    `processes` processes share the runs of an ablation.

    Raises:
        ConfigurationError: an unknown page or ablation.
        TrainingEnded: a fault has left out runs of an ablation; the page, which says so, is written.
    """
    claims = known_claims(name)
    left_out: list[LeftOut] = []
    folder = project_root() / PAGES
    for ablation in _select_ablations(name, claims, run):
        experiment = experiment_of(claims.ablations[ablation])
        keep_finished_runs(experiment.storage.keep_finished_days)
        use_storage(experiment.storage.url, experiment.storage.cache_gigabytes)
        result = run_ablation(experiment, processes=processes).result
        left_out += result.left_out
        costs = result.report.costs
        budgets = () if costs is None else tuple(costs.at_equal)
        rule = experiment.ablation.until
        looks = () if rule is None else looks_until(rule.first, rule.step, rule.at_most)
        record = Record(result.digest, _without_samples(result.report, claims), budgets, looks)
        write_whole(_record_path(folder, ablation), _RECORDS.dump_json(record).decode() + "\n")
    with showing_progress("drawing the page"):
        draw_page(name, claims, folder)
    console = Console()
    for decision in decide_records(claims, records(claims, folder)):
        console.print(f"{decision.verdict:<26}{decision.claim.claim}", highlight=False)
    console.print(f"page  {folder / name}.md", highlight=False, soft_wrap=True)
    require_none(left_out)


def draw_page(name: str, claims: ClaimsPage, folder: Path) -> None:
    """Write the page and its figures from the records in a folder."""
    page_records = records(claims, folder)
    for figure in figures(name, claims, page_records):
        write_whole(folder / f"{figure.name}.png", figure.png())
    write_whole(folder / f"{name}.md", page(name, claims, page_records))


def records(claims: ClaimsPage, folder: Path) -> dict[str, Record]:
    """The records of a page's ablations, in the page's order; ablations without a record are left out."""
    paths = {ablation: _record_path(folder, ablation) for ablation in claims.ablations}
    return {
        ablation: _RECORDS.validate_json(path.read_text(encoding="utf-8"))
        for ablation, path in paths.items()
        if path.is_file()
    }


def experiment_of(planned: PlannedAblation) -> Experiment:
    """The configuration of a planned ablation."""
    root = project_root()
    return load(root / "params.yaml", [root / overlay for overlay in planned.overlays])


def _select_ablations(name: str, claims: ClaimsPage, run: Sequence[str]) -> list[str]:
    selected = [
        ablation
        for ablation, planned in claims.ablations.items()
        if ablation in run or (planned.core and "core" in run) or "all" in run
    ]
    for each in run:
        if each not in ("core", "all", *claims.ablations):
            raise ConfigurationError(
                f"the page {name!r} has the ablations {', '.join(claims.ablations)}, or core, or all; found {each!r}",
                "TW-unknown-ablation",
            )
    for ablation in selected:
        own_name = experiment_of(claims.ablations[ablation]).ablation.name
        if own_name != ablation:
            raise ConfigurationError(
                f"an ablation must have the name {ablation!r} that the page {name!r} gives it; its parameters "
                f"say {own_name!r}",
                "TW-ablation-name",
            )
    return selected


def _without_samples(report: ReportData, claims: ClaimsPage) -> ReportData:
    """The part of the report data that a page may need: only curves that it shows or tests, and no trajectories.

    Costs are a part of the record itself.
    """
    measures = [measure for claim in claims.claims for each in claim.relations for measure in each.measures]
    metrics = {*claims.curves, *measures, MEASURE}
    curves = [curve for curve in report.curves if curve.metric in metrics]
    return dataclasses.replace(report, samples=[], curves=curves, costs=None)


def _record_path(folder: Path, ablation: str) -> Path:
    return folder / "data" / f"{ablation}.json"


_RECORDS = TypeAdapter(Record)


NIGHT = 12 * 3600.0
"""Seconds of two cores that are in reach."""


@dataclass(frozen=True)
class PlannedSeeds:
    """How many seeds a difference that is worth having needs, by a pilot, and how many were run."""

    ablation: str
    planned: PlannedPower
    needed: int | None
    """None where more than a thousand would be needed."""
    run: int
    """0 where the ablation was not run."""


@dataclass(frozen=True)
class OpenRelation:
    """A relation that stayed open, and what would decide it."""

    evidence: Evidence
    deviation: float | None
    """Of the differences over the seeds that were run; None where the test is not of their mean, or they are equal."""
    decidable: float | None
    """The smallest difference that as many seeds decide."""
    worth_having: float | None
    needed: int | None
    """The seeds that decide the difference worth having or, where none is stated, as much as was seen; None where a
    thousand are too few, and for orders."""
    seconds: float | None
    """What they cost on the machine that made the runs, at its time for each seed."""


def planned_seeds(claims: ClaimsPage, reports: Mapping[str, ReportData]) -> list[PlannedSeeds]:
    """The seeds that each measure with a pilot needs, in the order of the page's file."""
    level = LEVEL / max(1, len(_relations(claims)))
    return [
        PlannedSeeds(
            name,
            planned,
            seeds_to_decide(planned.worth_having, planned.deviation, level),
            len({curve.seed for curve in reports[name].curves}) if name in reports else 0,
        )
        for name, ablation in claims.ablations.items()
        for planned in ablation.power
    ]


def open_relations(
    claims: ClaimsPage, decisions: Sequence[DecidedClaim], reports: Mapping[str, ReportData]
) -> list[OpenRelation]:
    """The relations that neither hold nor are reversed, of the claims that were not decided, each once."""
    level = LEVEL / max(1, len(_relations(claims)))
    undecided = {
        evidence.relationship: evidence
        for decided in decisions
        if decided.verdict is Verdict.NOT_DECIDED
        for evidence in decided.evidence
        if not evidence.holds
    }
    return [_open_relation(claims, evidence, reports, level) for evidence in undecided.values()]


def _relations(claims: ClaimsPage) -> set[object]:
    return {each for claim in claims.claims for each in claim.relations}


def costs_of_deciding(decisions: Sequence[DecidedClaim], relations: Sequence[OpenRelation]) -> list[str]:
    """A sentence for each claim that was not decided: what deciding it would take, and whether a night is enough."""
    by_relationship = {each.evidence.relationship: each for each in relations}
    return [
        f"{decided.claim.claim}: {_cost([by_relationship[e.relationship] for e in decided.evidence if not e.holds])}."
        for decided in decisions
        if decided.verdict is Verdict.NOT_DECIDED
    ]


def _cost(relations: Sequence[OpenRelation]) -> str:
    if any(each.needed is None or each.seconds is None for each in relations):
        return (
            f"out of reach, since what was seen is too near to nothing, or varies too much, for {MOST_SEEDS:,} seeds "
            "to decide it"
        )
    seeds, seconds = max(each.needed or 0 for each in relations), max(each.seconds or 0.0 for each in relations)
    reach = "within a night on two cores" if seconds <= NIGHT else "out of reach of a night on two cores"
    return f"{seeds} seeds, {duration(seconds)}, {reach}"


def _open_relation(
    claims: ClaimsPage, evidence: Evidence, reports: Mapping[str, ReportData], level: float
) -> OpenRelation:
    relationship, estimate = evidence.relationship, evidence.estimate
    sample = estimate.sample if estimate else ()
    worth = evidence.worth_having
    deviation = float(np.std(sample, ddof=1)) if len(sample) > 1 else 0.0
    decidable = needed = None
    if relationship.relation == "varies less than" and estimate is not None:
        needed = seeds_to_correlate(_correlation(evidence.p, estimate.count), level)
    elif relationship.relation != "falls before" and estimate is not None and deviation > 0.0:
        decidable = smallest_decided(deviation, len(sample), level)
        needed = seeds_to_decide(abs(estimate.value) if worth is None else worth, deviation, level)
    each_seed = sum(sum(reports[name].seconds.values()) for name in relationship.ablations)
    seconds = None if needed is None or estimate is None else needed * each_seed / estimate.count
    return OpenRelation(evidence, deviation if decidable else None, decidable, worth, needed, seconds)


def _correlation(p: float, pairs: int) -> float:
    """The correlation, without its sign, that the t test of as many pairs gives this two-sided p."""
    t = float(special.stdtrit(pairs - 2, 1 - p / 2))
    return t / float(np.hypot(t, np.sqrt(pairs - 2)))


FOLDER = "claims"
WIDTH, BAND_INCHES, TITLE_INCHES = 6.8, 0.95, 0.42
SHADE = "#e3f1ec"
LINE_CHARACTERS, BAND_CHARACTERS = 78, 100
STANDINGS = {"holds": COLOURS[2], "reversed": COLOURS[1], "too small": COLOURS[4], "open": GREY}


def claim_figure(page: str, place: int, decided: DecidedClaim, headings: Mapping[str, str]) -> Figure | None:
    """The figure of the claim at `place`, from 1, of a page; None where nothing was run of it.

    `headings` says how to call a measure that is a curve.
    """
    if not decided.evidence:
        return None

    def draw(_legend: bool) -> Drawing:
        title = textwrap.wrap(f"{decided.claim.claim}: {decided.verdict}", LINE_CHARACTERS)
        height = BAND_INCHES * len(decided.evidence) + TITLE_INCHES * len(title)
        drawing = Drawing(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
        drawing.suptitle("\n".join(title), x=0.012, ha="left", fontsize=10, fontweight="bold")
        bands = drawing.subplots(len(decided.evidence), 1, squeeze=False)[:, 0]
        for axes, evidence in zip(bands, decided.evidence, strict=True):
            _draw_band(axes, evidence, _limits(evidence, decided.evidence), _comparison(evidence, headings))
        bands[-1].set_xlabel(f"{bands[-1].get_xlabel()}   (shaded: as claimed)", fontsize=7.5)
        return drawing

    return Figure(
        f"{FOLDER}/{page}-{place}",
        " ".join(
            [
                f"{decided.claim.claim}: {decided.verdict}.",
                *(f"{_comparison(each, headings)}." for each in decided.evidence),
            ]
        ),
        ("relation", "measure", "difference", "low", "high", "worth having"),
        [_row(each) for each in decided.evidence],
        draw,
    )


def _limits(evidence: Evidence, others: Sequence[Evidence]) -> tuple[float, float]:
    """What a band spans: the values of all bands of the same kind of difference, and 0."""
    alike = [each for each in others if _kind(each) == _kind(evidence)]
    at = [0.0, *(value for each in alike for value in _values(each))]
    room = 0.12 * (max(at) - min(at) or 1.0)
    return min(at) - room, max(at) + room


def _kind(evidence: Evidence) -> tuple[str, bool]:
    relationship = evidence.relationship
    return relationship.measure, relationship.relation in OF_MEANS


def _values(evidence: Evidence) -> list[float]:
    """All that a band shows."""
    if evidence.estimate is None:
        return []
    marks = [evidence.estimate.value, evidence.estimate.low, evidence.estimate.high, _worth_having(evidence)]
    return [*evidence.estimate.sample, *(each for each in marks if each is not None)]


def _worth_having(evidence: Evidence) -> float | None:
    """Where the difference worth having lies: on the claimed side."""
    if evidence.worth_having is None:
        return None
    return evidence.worth_having if evidence.relationship.upwards else -evidence.worth_having


def _draw_band(axes: Axes, evidence: Evidence, limits: tuple[float, float], title: str) -> None:
    estimate, colour = evidence.estimate, STANDINGS[evidence.standing]
    axes.set_title("\n".join(textwrap.wrap(title, BAND_CHARACTERS)), fontsize=8.5, fontweight="normal", color=INK)
    axes.set_xlabel(_difference(evidence), fontsize=7.5)
    axes.set_yticks([])
    axes.set_ylim(-1, 1)
    axes.set_xlim(limits)
    axes.spines["left"].set_visible(False)
    axes.axvspan(0.0, limits[evidence.relationship.upwards], color=SHADE, linewidth=0)
    axes.axvline(0.0, color=GREY, linewidth=1.0)
    worth_having = _worth_having(evidence)
    if worth_having is not None:
        axes.axvline(worth_having, color=INK, dashes=(4, 3), linewidth=1.0)
        inwards = "left" if worth_having < 0 else "right"
        axes.annotate(
            "worth having",
            (worth_having, 1),
            (3 if inwards == "left" else -3, -2),
            textcoords="offset points",
            fontsize=7,
            ha=inwards,
            va="top",
            color=INK,
        )
    if estimate is None:
        return
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [0, 0], color=colour, linewidth=3, alpha=0.6, solid_capstyle="butt")
    draw_strokes(axes, estimate.sample, -0.55, colour, 7)
    axes.plot([estimate.value], [0], "o", color=colour, markersize=7)


def _comparison(evidence: Evidence, headings: Mapping[str, str]) -> str:
    """What is compared, with its values, e.g. `grpo 0.56 against ppo 0.57 in exact match, 7 seeds: open`."""
    relationship, estimate = evidence.relationship, evidence.estimate
    variant, than, measure = relationship.variant, relationship.than, _heading(relationship.measure, headings)
    if estimate is None or evidence.compared is None:
        return f"{variant}: {measure}, fewer than 2 seeds: {evidence.standing}"
    own, other = (number(each, 2) for each in evidence.compared)
    if relationship.relation == "varies less than":
        what = f"{variant} varies by {own}, {than} by {other}, in {measure}"
    elif than is not None:
        what = f"{variant} {own} against {than} {other} in {measure}"
    elif relationship.later is not None:
        earlier, later = (number(each, 0) for each in reversed(evidence.compared))
        what = f"{variant}: {measure} falls at iteration {earlier}, {_heading(relationship.later, headings)} at {later}"
    else:
        what = f"{variant}: {measure}, from {other} to {own}"
    return f"{what}; {estimate.count} seeds: {evidence.standing}"


def _heading(measure: str, headings: Mapping[str, str]) -> str:
    return headings.get(measure, measure)


def _difference(evidence: Evidence) -> str:
    what = {"varies less than": "difference of the deviations", "falls before": "iterations between the falls"}
    return f"{what.get(evidence.relationship.relation, 'difference')}: {with_bounds(evidence.estimate, 3, sign=True)}"


def _row(evidence: Evidence) -> tuple[str | float | None, ...]:
    estimate = evidence.estimate
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return (evidence.relationship.sentence, evidence.relationship.measure, *values, evidence.worth_having)
