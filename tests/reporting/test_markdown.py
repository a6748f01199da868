"""Templates of Markdown pages: a cell cannot break its table, and an unknown name is an error."""

import pytest
from jinja2 import UndefinedError

from turnwise.reporting.markdown import render, table, templates


def test_a_table_has_a_line_for_each_row_and_a_bar_in_a_cell_begins_no_other() -> None:
    assert table(["a", "b"], [["left | right", 2]]) == "| a | b |\n| --- | --- |\n| left \\| right | 2 |"


def test_a_text_of_several_lines_stays_in_its_cell() -> None:
    assert table(["a"], [["one\ntwo"]]) == "| a |\n| --- |\n| one two |"


def test_a_value_that_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'lines' is undefined"):
        render("lab", "worlds-learning.md.jinja", missing=[], digests=[])


@pytest.mark.parametrize(("package", "some"), [("turnwise.reporting", "model-card"), ("lab", "science")])
def test_every_template_is_read(package: str, some: str) -> None:
    names = templates(package).list_templates()
    assert f"{some}.md.jinja" in names
    for name in names:
        templates(package).get_template(name)
