from dataclasses import replace

import pytest
from pydantic import ValidationError

from lab.results_page import learning_results, page, read_record
from turnwise.checking.baselines import json_lines
from turnwise.results.report_data import Curve, ReportColumn, ReportData, Row
from turnwise.statistics import Interval, student_over_seeds, wilson


def report(greedy: float = 0.5, *, oracle: bool = True) -> ReportData:
    """One rule that learned for seven iterations, from 30 of 100 greedy episodes; sampled ones from 0.2 to 0.4."""

    def of_seeds(value: float) -> Interval:
        return student_over_seeds([value], within=(0.0, 1.0))

    rows = [
        Row("grpo", "variant", {"success": of_seeds(0.4), "turns": None, "greedy success": of_seeds(greedy)}),
        Row("warm start", "warm start", {"success": wilson(20, 100), "greedy success": wilson(30, 100)}),
        Row("random", "baseline", {"success": wilson(10, 100)}),
    ]
    rows += [Row("oracle", "baseline", {"success": wilson(100, 100)})] if oracle else []
    columns = [
        ReportColumn("success", "success", "share", "up"),
        ReportColumn("turns", "turns"),
        ReportColumn("greedy success", "greedy success", "share", "up"),
    ]
    curves = [Curve("success", "success", "grpo", 1, [(0, 0.2), (7, 0.4)])]
    return ReportData("a world", "Play.", columns, rows, curves)


def test_a_result_holds_the_sampled_and_greedy_scores_and_the_iterations() -> None:
    (found,) = learning_results("lake", report(), "d" * 32)
    assert (found.measure, found.iterations) == ("success", 7)
    sampled = [cell.value for cell in (found.random, found.warm_start, found.trained, found.oracle) if cell]
    greedy = [cell.value for cell in (found.greedy_warm_start, found.greedy_trained) if cell]
    assert (sampled, greedy) == ([0.1, 0.2, 0.4, 1.0], [0.3, 0.5])
    assert read_record(json_lines([found])) == [found]
    with pytest.raises(ValidationError):
        read_record('[{"experiment": "lake"}]')


@pytest.mark.parametrize(
    ("greedy", "verdict"),
    # Wilson's interval of 30 of 100 is 0.219 to 0.396.
    [(0.5, "higher"), (0.39, "no difference seen"), (0.23, "no difference seen"), (0.1, "lower")],
)
def test_the_trained_policy_differs_where_greedy_play_leaves_the_starts_interval(greedy: float, verdict: str) -> None:
    assert learning_results("lake", report(greedy), "")[0].verdict == verdict


def test_the_page_has_a_row_for_each_rule_and_says_where_there_is_no_oracle() -> None:
    text = page(
        [*learning_results("lake", report(), "d" * 32), *learning_results("ice", report(oracle=False), "e" * 32)]
    )
    rows = [
        line for line in text.splitlines() if line.startswith("| `lake` | grpo") or line.startswith("| `ice` | grpo")
    ]
    figures = "0.10 (0.06 to 0.17) | 0.30 (0.22 to 0.40) | 0.50 | 0.20 (0.13 to 0.29) | 0.40 | 1.00 (0.96 to 1.00)"
    assert rows[0] == f"| `lake` | grpo | success | {figures} | 7 | higher |"
    assert rows[1].endswith("| 0.40 | – | 7 | higher |")
    assert f"| `lake` | `{'d' * 16}` |" in text


def test_the_page_names_what_has_not_been_recorded() -> None:
    assert "Not recorded yet: `shop`, `taxi`." in page([], ["shop", "taxi"])
    assert "Not recorded" not in page(learning_results("lake", report(), "d" * 32))


def test_without_an_interval_the_means_are_compared() -> None:
    (found,) = learning_results("lake", report(0.2), "")
    assert replace(found, greedy_warm_start=Interval(0.2, None, None, "tasks", 1)).verdict == "no difference seen"
    assert replace(found, greedy_warm_start=Interval(0.1, None, None, "tasks", 1)).verdict == "higher"


def test_the_page_says_what_stands_in_the_way() -> None:
    assert "* `shop`: The items' names are new." in page([], ["shop"], {"shop": "The items' names are new."})
    assert "stands in the way" not in page([], ["shop"])
