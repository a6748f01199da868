"""The credit study as figures and as CSV rows: every rule compared with the true advantages by replay.

A second figure holds closeness to the truth against success, where runs were trained with the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from turnwise.credit_study.study import RuleFigures, Study
from turnwise.credit_study.success import MEASURES, SuccessStudy, Trained
from turnwise.credit_study.truth import Agreement
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, MARKERS, PALE, Figure
from turnwise.statistics import Interval

Row = tuple[str | int | float | None, ...]

AGREEMENT_MEASURES = ("correlation", "slope", "error", "rank_correlation", "sign_errors", "bias", "deviation")
INTERVALS = ("signal_to_noise", "cosine", *AGREEMENT_MEASURES)
TURNS_SHOWN = 5
"""Maximum number of turns in the figure, so that their markers can be distinguished."""


def credit_figure(study: Study) -> Figure:
    """The figure of the study, one row per rule.

    Its panels: correlation of advantages with the truth, over all turns and within a state; sign errors; slopes by
    turn; cosine of the gradient with the true one, and the gradient's signal-to-noise ratio.
    """
    rules = study.figures[1:]

    def draw(legend: bool) -> Drawing:
        drawing = Drawing(figsize=(15.5, 0.3 * len(rules) + 1.5), layout=ConstrainedLayoutEngine(w_pad=0.08))
        correlation, ranks, signs, slopes, cosine, noise = drawing.subplots(1, 6, sharey=True)
        _draw_intervals(correlation, rules, lambda rule: getattr(rule.agreement, "correlation", None))
        correlation.set_title("advantages:\ncorrelation with the truth")
        _draw_intervals(ranks, rules, lambda rule: getattr(rule.agreement, "rank_correlation", None))
        ranks.set_title("advantages: correlation\nof ranks within a state")
        _draw_intervals(signs, rules, lambda rule: getattr(rule.agreement, "sign_errors", None))
        signs.set_title("advantages:\nshare of sign errors")
        _reference(signs, 0.5, "coin")
        if study.reliability is not None:
            _reference(correlation, math.sqrt(study.reliability), "as far as\nreplays can tell")
        _draw_slopes(slopes, rules, min(TURNS_SHOWN, study.slope_turns))
        slopes.set_title("advantages: slope of\na turn over that of all")
        _draw_intervals(cosine, rules, lambda rule: rule.gradient.cosine)
        cosine.set_title("gradient:\ncosine with the truth's")
        _draw_intervals(noise, rules, lambda rule: rule.gradient.signal_to_noise)
        noise.xaxis.set_major_locator(MaxNLocator(5))
        noise.set_title("gradient:\nsignal to noise of a group")
        truth = study.figures[0].gradient.signal_to_noise
        if truth is not None:
            _reference(noise, truth.value, "truth")
        for axes in (correlation, ranks, cosine):
            axes.set_xlim(min(-0.05, axes.get_xlim()[0]), 1.05)
        correlation.set_yticks(range(len(rules)), [rule.title for rule in rules], color=INK)
        correlation.set_ylim(len(rules) - 0.4, -0.6)
        return drawing

    return Figure(
        "credit-study",
        "How the advantages and gradients of each credit rule agree with the truth by replay, and how noisy they are.",
        header(study),
        rows(study),
        draw,
    )


def success_figure(success: SuccessStudy) -> Figure:
    """Rules as points: how close each comes to the truth, by every measure, and its success after an equal budget."""

    def draw(legend: bool) -> Drawing:
        drawing = Drawing(figsize=(3.4 * len(MEASURES), 3.9), layout=ConstrainedLayoutEngine(w_pad=0.08))
        for axes, prediction in zip(drawing.subplots(1, len(MEASURES), sharey=True), success.predictions, strict=True):
            for place, each in enumerate(success.trained):
                closeness = MEASURES[prediction.measure](each.rule)
                if closeness is not None:
                    _draw_point(axes, closeness, each, place)
            axes.set_title(f"{prediction.measure}, with success:\n{prediction.spelled}")
            axes.set_xlabel(f"{prediction.measure} with the truth" if "signs" not in prediction.measure else "share")
        drawing.axes[0].set_ylabel(f"success after {success.budget}")
        handles, names = drawing.axes[0].get_legend_handles_labels()
        drawing.legend(handles, names, loc="outside lower center", ncols=5)
        return drawing

    return Figure(
        "success" if success.axis == "sampled_tokens" else f"success-{success.axis}",
        "Each rule's closeness to the truth, by every measure, and the success of the runs that were trained with it.",
        ("variant", "rule", *(f"{name}{end}" for name in (*MEASURES, "success") for end in ("", " low", " high"))),
        [
            (
                each.variant,
                each.rule.title,
                *(bound for measure in MEASURES.values() for bound in _bounds(measure(each.rule))),
                *_bounds(each.success),
            )
            for each in success.trained
        ],
        draw,
    )


def _draw_point(axes: Axes, closeness: Interval, trained: Trained, place: int) -> None:
    colour, success = COLOURS[place % len(COLOURS)], trained.success
    if closeness.low is not None and closeness.high is not None:
        axes.plot([closeness.low, closeness.high], [success.value] * 2, color=colour, linewidth=1.2, alpha=0.4)
    if success.low is not None and success.high is not None:
        axes.plot([closeness.value] * 2, [success.low, success.high], color=colour, linewidth=1.2, alpha=0.4)
    marker = MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]
    axes.plot(
        [closeness.value], [success.value], marker, color=colour, markersize=6, linestyle="none", label=trained.variant
    )


def _bounds(interval: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if interval is None else (interval.value, interval.low, interval.high)


def header(study: Study) -> tuple[str, ...]:
    """The column names of `rows`."""
    interval_columns = [f"{name}{suffix}" for name in INTERVALS for suffix in ("", "_low", "_high")]
    slope_columns = [f"slope_turn_{turn + 1}" for turn in range(study.slope_turns)]
    return ("rule", "gradient_norm", "gradient_deviation", *interval_columns, *slope_columns)


def rows(study: Study) -> list[Row]:
    """One row per rule, the truth first; None for a number that is not defined."""
    return [_row(rule, study.slope_turns) for rule in study.figures]


def _row(rule: RuleFigures, turns: int) -> Row:
    gradient, agreement = rule.gradient, rule.agreement or Agreement(None, None, None, ())
    intervals = (gradient.signal_to_noise, gradient.cosine, *(getattr(agreement, name) for name in AGREEMENT_MEASURES))
    bounds = [number for each in intervals for number in _bounds(each)]
    slopes = [None if slope is None else slope.value for slope in agreement.slopes]
    return (rule.title, gradient.norm, gradient.deviation, *bounds, *slopes, *[None] * (turns - len(slopes)))


def _draw_intervals(axes: Axes, rules: Sequence[RuleFigures], choose: Callable[[RuleFigures], Interval | None]) -> None:
    for height, rule in enumerate(rules):
        interval = choose(rule)
        if interval is None:
            axes.annotate("not defined", (0.02, height), xycoords=("axes fraction", "data"), color=GREY, va="center")
            continue
        if interval.low is not None and interval.high is not None:
            axes.plot([interval.low, interval.high], [height, height], color=COLOURS[0], linewidth=2.2, alpha=0.45)
        axes.plot([interval.value], [height], "o", color=COLOURS[0], markersize=6)
    _plain(axes)


def _draw_slopes(axes: Axes, rules: Sequence[RuleFigures], turns: int) -> None:
    """Draw the slope of each turn divided by that of all turns together; with equal slopes all lie at 1."""
    for turn in range(turns):
        shift = 0.3 * (turn - (turns - 1) / 2) / max(1, turns - 1)
        points = [(_share(rule, turn), height + shift) for height, rule in enumerate(rules)]
        shares = [(share, height) for share, height in points if share is not None]
        axes.plot(
            [share for share, _ in shares],
            [height for _, height in shares],
            MARKERS[turn],
            color=COLOURS[turn],
            markersize=5.5,
            linestyle="none",
            label=f"turn {turn + 1}",
        )
    _reference(axes, 1.0, "equal")
    _plain(axes)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=2 if turns == 4 else 3, handlelength=1, columnspacing=1
    )


def _share(rule: RuleFigures, turn: int) -> float | None:
    """The slope of one turn divided by that of all turns; None if either is undefined or the latter is not positive."""
    agreement = rule.agreement
    if agreement is None or agreement.slope is None or agreement.slope.value <= 0 or turn >= len(agreement.slopes):
        return None
    slope = agreement.slopes[turn]
    return None if slope is None else slope.value / agreement.slope.value


def _reference(axes: Axes, value: float, label: str) -> None:
    axes.axvline(value, color=COLOURS[1], linewidth=1.2, linestyle=(0, (4, 2)), zorder=0)
    axes.annotate(
        label, (value, 0), (0, -16), ("data", "axes fraction"), "offset points", color=COLOURS[1], ha="center", va="top"
    )


def _plain(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(True, axis="y", color=PALE)
    axes.axvline(0.0, color=GREY, linewidth=0.9, zorder=0)
    axes.spines["left"].set_visible(False)
