"""Tables of a judgement: what stands in a cell."""

from turnwise.reporting.data.tables import text_cell
from turnwise.statistics import student_over_seeds


def test_a_value_of_several_seeds_has_an_interval_or_says_why_not():
    assert text_cell(student_over_seeds([0.7])) == "0.70"
    assert text_cell(student_over_seeds([0.5, 0.5])) == "0.50\nall 2 seeds are equal:\nno interval"
    assert text_cell(student_over_seeds([0.5, 0.6, 0.7]), with_sign=True) == "+0.60\n0.35–0.85"
    assert text_cell(None) == "–"
