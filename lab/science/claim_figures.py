"""A figure for each claim of a page: its verdict, and where the differences that it rests on lie.

Each relation has a band of its own. The claimed side is shaded, a dashed line stands at the difference that was stated
to be worth having, strokes are single seeds, and the bar is the 95 % interval of their mean. So a claim that is held
has its bar within the shade, and one that is too small to matter has it short of the dashed line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lab.science.claim_verdicts import DecidedClaim, Evidence
from lab.science.claims import OF_MEANS
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, Figure
from turnwise.reporting.formatting import number, with_bounds

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
    axes.plot(estimate.sample, [-0.55] * len(estimate.sample), "|", color=colour, markersize=7, markeredgewidth=1.2)
    axes.plot([estimate.value], [0], "o", color=colour, markersize=7)


def _comparison(evidence: Evidence, headings: Mapping[str, str]) -> str:
    """What is compared, with its values, e.g. `grpo 0.56 against ppo 0.57 in exact match, 7 seeds: open`."""
    relationship, estimate = evidence.relationship, evidence.estimate
    variant, than, measure = relationship.variant, relationship.than, _called(relationship.measure, headings)
    if estimate is None or evidence.compared is None:
        return f"{variant}: {measure}, fewer than 2 seeds: {evidence.standing}"
    own, other = (number(each, 2) for each in evidence.compared)
    if relationship.relation == "varies less than":
        what = f"{variant} varies by {own}, {than} by {other}, in {measure}"
    elif than is not None:
        what = f"{variant} {own} against {than} {other} in {measure}"
    elif relationship.later is not None:
        earlier, later = (number(each, 0) for each in reversed(evidence.compared))
        what = f"{variant}: {measure} falls at iteration {earlier}, {_called(relationship.later, headings)} at {later}"
    else:
        what = f"{variant}: {measure}, from {other} to {own}"
    return f"{what}; {estimate.count} seeds: {evidence.standing}"


def _called(measure: str, headings: Mapping[str, str]) -> str:
    return headings.get(measure, measure)


def _difference(evidence: Evidence) -> str:
    what = {"varies less than": "difference of the deviations", "falls before": "iterations between the falls"}
    return f"{what.get(evidence.relationship.relation, 'difference')}: {with_bounds(evidence.estimate, 3, sign=True)}"


def _row(evidence: Evidence) -> tuple[str | float | None, ...]:
    estimate = evidence.estimate
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return (evidence.relationship.sentence, evidence.relationship.measure, *values, evidence.worth_having)
