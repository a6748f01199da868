import pytest
from pydantic import ValidationError

from lab.baselines import KnownFigure, page, verdict
from turnwise.checking.baselines import BaselineRow, Score, json_lines, read_lines
from turnwise.statistics import Interval, bootstrap_over_tasks, wilson


def line(baseline: str = "random", setting: str = "", successes: int = 20) -> BaselineRow:
    rewards = bootstrap_over_tasks([-1.0] * 50 + [1.0] * 50, seed=0)
    turns = bootstrap_over_tasks([2.0] * 100, seed=0)
    scored = Score(baseline, 100, 100, wilson(successes, 100), rewards, turns)
    return BaselineRow("lake", "1", setting, "0" * 32, "Uniform over the four | directions.", scored)


def known(low: float, high: float, baseline: str = "random", setting: str = "") -> KnownFigure:
    return KnownFigure("lake", setting, baseline, low, high, "somebody's page", "their ice is thinner")


def test_a_record_is_read_as_it_was_written() -> None:
    lines = [line(), line("oracle", "ragen", 100)]
    assert read_lines(json_lines(lines)) == lines
    assert json_lines(lines).count("\n") == len(lines) + 2
    assert read_lines(json_lines([])) == []
    with pytest.raises(ValidationError):
        read_lines('[{"world": "lake"}]')


def test_the_table_has_a_row_for_each_line_with_its_intervals() -> None:
    # Wilson's interval of 20 of 100 is 0.133 to 0.289; turns that are all alike have none.
    text = page([line(), line("oracle", "ragen", 100)], [])
    rows = [row for row in text.splitlines() if row.startswith("| `lake` |")]
    assert rows[0].startswith("| `lake` | default | random | 0.200 (0.133 to 0.289) | 0.00 (−0.")
    assert rows[0].endswith(" | 2.0 | 100 | 100 |")
    assert rows[1].startswith("| `lake` | ragen | oracle | 1.000 (0.963 to 1.000) |")


def test_what_a_random_baseline_draws_from_is_told_once_and_cannot_break_the_table() -> None:
    text = page([line(), line(setting="ragen"), line("oracle")], [])
    assert text.count("| `lake` | Uniform over the four \\| directions. |") == 1


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (known(0.21, 0.25), "yes"),
        (known(0.288, 0.288), "yes"),
        (known(0.10, 0.14), "yes"),
        (known(0.30, 0.30), "no, ours is lower: their ice is thinner"),
        (known(0.05, 0.10), "no, ours is higher: their ice is thinner"),
    ],
)
def test_the_page_says_whether_the_interval_covers_a_known_figure(figure: KnownFigure, said: str) -> None:
    assert verdict(wilson(20, 100), figure) == said
    assert f"| {said} |" in page([line()], [figure])


def test_without_an_interval_the_value_itself_must_lie_in_the_range() -> None:
    alone = Interval(0.2, None, None, "tasks", 1)
    assert verdict(alone, known(0.2, 0.3)) == "yes"
    assert verdict(alone, known(0.21, 0.3)).startswith("no, ours is lower")


def test_a_figure_without_a_line_is_told_as_not_recorded() -> None:
    assert "| oracle on `lake`, ragen | 0.484 | somebody's page | not recorded |  |" in page(
        [line()], [known(0.484, 0.484, "oracle", "ragen")]
    )
    assert "| 0.210 to 0.250 |" in page([line()], [known(0.21, 0.25)])
