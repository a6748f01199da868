"""What a sweep tells: the best candidate, how the others compare with it, and what has no result."""

from __future__ import annotations

import json

from turnwise.config.sweeps import candidates
from turnwise.reporting.sweep import SweepReport
from turnwise.statistics import Results, judge

KEY = "optimization.learning_rate"
TRIED = candidates({KEY: [0.1, 0.2, 0.3, 0.4]})


def results(*means: float) -> Results:
    """One run per mean, on two tasks that lie a tenth above and below it."""
    return Results({1001 + place: {"a": mean - 0.1, "b": mean + 0.1} for place, mean in enumerate(means)})


def swept(*, higher_is_better: bool = True) -> SweepReport:
    found = {
        "learning_rate-0.1": results(0.20, 0.21, 0.25),
        "learning_rate-0.2": results(0.80, 0.81, 0.82),
        "learning_rate-0.3": results(0.80, 0.70, 0.87),
    }
    ended = {"learning_rate-0.4": "no signal for 10 iterations\nand more"}
    return SweepReport(TRIED, [1001, 1002, 1003], 2, judge("success", found), higher_is_better, ended)


def test_the_best_has_the_best_mean() -> None:
    assert swept().winner.values == {KEY: 0.2}
    assert swept(higher_is_better=False).winner.values == {KEY: 0.1}


def test_of_equal_candidates_the_first_is_the_best() -> None:
    found = {name: results(0.5) for name in ("learning_rate-0.1", "learning_rate-0.2")}
    assert SweepReport(TRIED[:2], [1001], 2, judge("success", found)).winner is TRIED[0]


def test_every_candidate_is_compared_with_the_best() -> None:
    report = swept()
    assert [report.than_best(each.name) for each in TRIED] == [
        "lower",
        "the best",
        "not distinguishable",
        "ended early",
    ]
    assert "Not distinguishable from it: learning_rate-0.3. The best of several is partly lucky" in report.finding()
    assert swept(higher_is_better=False).than_best("learning_rate-0.2") == "higher"


def test_the_table_has_a_row_for_each_candidate() -> None:
    table = swept().table()
    assert table.columns == ["learning_rate", "success", "95 % interval", "against the best"]
    assert [row[:2] for row in table.rows] == [["0.1", "0.22"], ["0.2", "0.81"], ["0.3", "0.79"], ["0.4", "–"]]
    assert table.notes[:2] == [
        "On the 2 validation tasks; the interval is over the seeds 1001, 1002, 1003.",
        "learning_rate-0.4: no signal for 10 iterations",
    ]


def test_the_files_hold_every_run() -> None:
    written = json.loads(swept().to_json())
    assert written["best"] == {KEY: 0.2} and written["split"] == "validation"
    assert written["candidates"][0]["runs"].keys() == {"1001", "1002", "1003"}
    assert written["candidates"][3] == {
        "name": "learning_rate-0.4",
        "values": {KEY: 0.4},
        "than_best": "ended early",
        "ended": "no signal for 10 iterations\nand more",
    }
    lines = swept().to_csv().splitlines()
    assert lines[0] == f"{KEY},seed,success" and len(lines) == 10
    assert lines[1].startswith("0.1,1001,0.2")
