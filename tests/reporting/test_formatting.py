import pytest

from turnwise.reporting.formatting import basis, bounds, duration, heading, number, signed
from turnwise.results.report_data import ReportColumn, ReportData, Row
from turnwise.statistics import Interval, student_over_seeds, wilson


def test_numbers_have_fixed_digits_and_true_signs():
    assert number(0.906, 2) == "0.91"
    assert number(-0.5, 1) == "−0.5"
    assert number(-0.001, 2) == "0.00"
    assert (signed(0.25, 2), signed(-0.25, 2), signed(0.001, 2)) == ("+0.25", "−0.25", "0.00")


def test_bounds_are_a_range_and_a_minus_is_not_taken_for_a_dash():
    assert bounds(Interval(0.9, 0.87, 0.95, "seeds", 2), 2) == "0.87–0.95"
    assert bounds(Interval(0.0, -0.5, 0.5, "seeds", 2), 1) == "−0.5 to 0.5"
    assert bounds(Interval(0.9, None, None, "seeds", 1), 2) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "1 min 40 s"),
        (422.1, "7 min 02 s"),
        (7199.6, "2 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, said):
    assert duration(seconds) == said


def test_a_heading_names_unit_and_direction():
    assert heading(ReportColumn("a", "exact match", "share", "up")) == "exact match\u00a0↑"
    assert heading(ReportColumn("a", "reply", "tokens")) == "reply (tokens)"


def test_what_the_intervals_are_over_is_said_once_for_the_rows_that_are_alike():
    rows = [
        Row("a", "variant", {"x": student_over_seeds([0.1, 0.2]), "y": student_over_seeds([1.0, 1.0])}),
        Row("b", "variant", {"x": student_over_seeds([0.3, 0.4]), "y": None}),
        Row("c", "baseline", {"x": wilson(3, 10)}),
        Row("d", "variant", {"x": student_over_seeds([0.5])}),
    ]
    assert basis(ReportData("t", "d", [ReportColumn("x", "x"), ReportColumn("y", "y")], rows)) == [
        "a, b: mean over 2 seeds, 95 % interval over seeds (Student's t); where all 2 seeds are equal: no interval.",
        "c: mean over 10 tasks, 95 % interval over tasks (Wilson).",
        "d: one seed: no interval.",
    ]


def test_where_a_column_rests_on_fewer_tasks_than_the_others_it_is_named():
    columns = [ReportColumn("x", "exact match"), ReportColumn("y", "tool success")]
    rows = [
        Row("a", "baseline", {"x": wilson(3, 10), "y": wilson(2, 6)}),
        Row("b", "baseline", {"x": wilson(4, 10), "y": wilson(3, 6)}),
    ]
    assert basis(ReportData("t", "d", columns, rows)) == [
        "a, b: mean over 10 tasks, 95 % interval over tasks (Wilson).",
        "a, b in tool success: mean over 6 tasks, 95 % interval over tasks (Wilson).",
    ]


def test_an_interval_over_a_single_task_is_said_too():
    rows = [
        Row("a", "baseline", {"x": wilson(1, 1)}),
        Row("b", "baseline", {"x": Interval(1.0, None, None, "tasks", 1)}),
    ]
    assert basis(ReportData("t", "d", [ReportColumn("x", "x")], rows[:1])) == [
        "a: mean over 1 task, 95 % interval over tasks (Wilson)."
    ]
    assert basis(ReportData("t", "d", [ReportColumn("x", "x")], rows)) == [
        "a, b: mean over 1 task, 95 % interval over tasks (Wilson); where one task: no interval."
    ]
