"""Tables of a judgement: what stands in a cell."""

from turnwise.reporting.terminal.verdicts import cell
from turnwise.statistics import student_over_seeds


def test_a_value_of_several_seeds_has_an_interval_or_says_why_not():
    assert cell(student_over_seeds([0.7])) == "0.70"
    assert cell(student_over_seeds([0.5, 0.5])) == "0.50\nall 2 seeds are equal:\nno interval"
    assert cell(student_over_seeds([0.5, 0.6, 0.7]), with_sign=True) == "+0.60\n0.35–0.85"
    assert cell(None) == "–"
