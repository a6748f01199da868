import itertools
import re
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib
import pytest

from turnwise.reporting.figures import comparison, drawing, learning_curves
from turnwise.results.report_data import Curve, ReportColumn, ReportData, Row
from turnwise.statistics import student_over_seeds


def test_a_band_is_the_mean_and_the_range_over_the_iterations_that_all_seeds_have():
    curves = [
        Curve("m", "m", "v", 1, [(0, 0.2), (1, 0.4), (2, 0.9)]),
        Curve("m", "m", "v", 2, [(0, 0.4), (2, 0.5), (4, 1.0)]),
    ]
    assert learning_curves.band(curves) == [(0, pytest.approx(0.3), 0.2, 0.4), (2, pytest.approx(0.7), 0.5, 0.9)]


def test_there_is_a_curve_per_metric_and_a_comparison_per_column(report):
    assert [figure.data[0][0] for figure in learning_curves.learning_curves(report)] == [
        "exact_match",
        "answer_in_results",
        "tool_success",
        "reward",
        "entropy",
        "mismatch",
    ]
    assert len(comparison.comparisons(report)) == len(report.columns)


def test_a_curves_data_are_the_points_that_were_given(report):
    curve = next(
        curve for curve in report.curves if (curve.metric, curve.variant, curve.seed) == ("reward", "grpo-mr", 2)
    )
    reward = next(figure for figure in learning_curves.learning_curves(report) if figure.data[0][0] == "reward")
    found = [
        (iteration, value) for _, variant, seed, iteration, value in reward.data if (variant, seed) == ("grpo-mr", 2)
    ]
    assert found == curve.points


def drawn(figure):
    return figure.draw(False).axes[0]


def test_several_seeds_have_a_band_and_one_seed_has_none(report, report_of_one_seed):
    assert len(drawn(learning_curves.learning_curves(report)[0]).collections) == 3
    assert len(drawn(learning_curves.learning_curves(report_of_one_seed)[0]).collections) == 0


def bars(axes):
    return [line for line in axes.lines if len(line.get_xdata()) == 2 and len(set(line.get_ydata())) == 1]


def test_one_seed_has_no_interval_bar(report, report_of_one_seed):
    # Three variants and the warm start have a bar; with one seed only the warm start, whose interval is over tasks.
    # Besides bars, two seeds are two strokes.
    def intervals(shown):
        return [line for line in bars(drawn(comparison.comparisons(shown)[0])) if line.get_linewidth() > 2]

    assert len(intervals(report)) == 4
    assert len(intervals(report_of_one_seed)) == 1


def test_strokes_of_equal_values_stand_side_by_side_around_their_value():
    figure, axes = drawing.axes_of(3.0, 1.0)
    drawing.draw_strokes(axes, [0.3, 0.75, 0.1 + 0.2], 0.0, "black", 5)
    figure.draw_without_rendering()
    first, second, alone = sorted(float(line.get_transform().transform(line.get_xydata())[0, 0]) for line in axes.lines)
    half, three_quarters = (float(axes.transData.transform((value, 0.0))[0]) for value in (0.3, 0.75))
    assert second - first == pytest.approx(drawing.STROKE_POINTS * figure.dpi / 72)
    assert (first + second) / 2 == pytest.approx(half)
    assert alone == pytest.approx(three_quarters)


def test_variants_differ_without_colour():
    names = [f"variant {place}" for place in range(5)]
    report = ReportData("t", "d", [ReportColumn("a", "a")], [Row(name, "variant", {}) for name in names])
    looks = drawing.styles(report)
    assert len({(style.dashes, style.marker) for style in looks.values()}) == 5


def test_the_elements_of_two_figures_have_identifiers_of_their_own(report):
    texts = [figure.svg() for figure in comparison.comparisons(report)[:3]]
    found = [set(re.findall(r'\bid="([^"]+)"', text)) for text in texts]
    assert all(found)
    assert not found[0] & found[1] and not found[1] & found[2]
    for text, identifiers in zip(texts, found, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= identifiers


def test_names_are_drawn_as_they_are_whatever_they_hold():
    name = "<script>$x^$ & 'y'"
    curves = [Curve("a/b", name, name, 1, [(0, 1.0), (1, 2.0)]), Curve("a-b", name, name, 1, [(0, 1.0)])]
    row = Row(name, "variant", {"a": student_over_seeds([0.1, 0.2])})
    report = ReportData("t", "d", [ReportColumn("a", name)], [row], curves)
    every = [*learning_curves.learning_curves(report), *comparison.comparisons(report)]
    assert len({figure.name for figure in every}) == 3
    for figure in every:
        root = ElementTree.fromstring(figure.svg())
        assert name in [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_is_the_same_bytes_each_time_and_carries_no_date(report):
    figure = learning_curves.learning_curves(report)[0]
    assert figure.png() == figure.png()
    assert figure.svg() == figure.svg()
    assert "date" not in figure.svg().lower()


def test_an_account_of_no_seconds_can_be_drawn(report):
    nothing = replace(report, seconds={"update": 0.0})
    assert comparison.time_account(nothing).png().startswith(b"\x89PNG")


def test_a_long_heading_with_its_unit_stays_inside_the_picture():
    curve = Curve(
        "m", "exact match on the validation task set, sampled at temperature one", "v", 1, [(0, 1.0)], "per cent"
    )
    figure = learning_curves.learning_curves(ReportData("t", "d", [], [], [curve]))[0]
    root = ElementTree.fromstring(figure.svg())
    title = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text") if "e" in (element.text or "")]
    assert " ".join(title[-3:]) == "exact match on the validation task set, sampled at temperature one (per cent)"
    with matplotlib.rc_context(drawing.SETTINGS):
        picture = figure.draw(False)
        picture.draw_without_rendering()
    assert picture.axes[0].title.get_window_extent().x1 <= picture.bbox.x1


@pytest.mark.parametrize("length", [31, 75, 200])
def test_a_long_name_is_wrapped_and_leaves_room_for_the_figure(report, length):
    name = ("meta-llama/Llama-3.1-8B-Instruct with turn-level credit, " * 4)[:length].strip()
    rows = [replace(row, name=name) if row.name == "grpo-or" else row for row in report.rows]
    figure = comparison.comparisons(replace(report, rows=rows))[0]
    with matplotlib.rc_context(drawing.SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where labels leave no room for the axes
        picture = figure.draw(True)
        drawing.legend_below(picture, [drawing.handle(name, drawing.styles_of([name])[name])])
        picture.draw_without_rendering()
    (axes,) = picture.axes
    labels = [label for label in axes.get_yticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert name in [" ".join(label.get_text().split("\n")).replace("- ", "-") for label in labels]
    assert all(box.x0 >= 0 for box in boxes) and axes.bbox.width > 0.3 * picture.bbox.width
    assert all(below.y1 <= above.y0 + 1 for above, below in itertools.pairwise(boxes)), "labels do not overlap"


def test_a_curve_of_one_iteration_names_that_iteration_and_no_fraction_of_one():
    report = ReportData("t", "d", [], [], curves=[Curve("a", "a", "x", 1, [(3, 0.5)], "share")])
    (figure,) = learning_curves.learning_curves(report)
    assert list(drawn(figure).get_xticks()) == [3]
