"""Templates of Markdown pages: a cell cannot break its table, and an unknown name is an error."""

import pytest
from jinja2 import UndefinedError

from turnwise.studies.markdown import render, table, templates


def test_a_table_has_a_line_for_each_row_and_a_bar_in_a_cell_begins_no_other() -> None:
    assert table(["a", "b"], [["left | right", 2]]) == "| a | b |\n| --- | --- |\n| left \\| right | 2 |"


def test_a_text_of_several_lines_stays_in_its_cell() -> None:
    assert table(["a"], [["one\ntwo"]]) == "| a |\n| --- |\n| one two |"


def test_a_value_that_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'lines' is undefined"):
        render("worlds-learning.md.jinja", missing=[], digests=[])


def test_every_template_is_read() -> None:
    names = templates().list_templates()
    assert {"baselines.md.jinja", "science.md.jinja"} <= set(names)
    for name in names:
        templates().get_template(name)
