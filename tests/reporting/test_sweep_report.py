"""What a sweep tells: the best candidate, how the others compare with it, and which runs were ended or left out."""

from __future__ import annotations

import json

from turnwise.config.sweeps import candidates
from turnwise.data.outcomes import LeftOut
from turnwise.reporting.sweep import SweepReport
from turnwise.results.outcomes import EndedRun, Outcomes
from turnwise.statistics import Results, judge

KEY = "optimization.learning_rate"
TRIED = candidates({KEY: [0.1, 0.2, 0.3, 0.4]})
SEEDS = [1001, 1002, 1003]
OUTCOMES = Outcomes(
    dict.fromkeys((each.name for each in TRIED), 3),
    [EndedRun("learning_rate-0.1", 1002, 4, 9, "no_signal", "no signal for 2 iterations")],
    [
        LeftOut("learning_rate-0.3", 1001, "mismatch", "another engine"),
        *(LeftOut("learning_rate-0.4", seed, "not_finite", "too long a step") for seed in SEEDS),
    ],
)
"""One run of the first candidate was ended, and counts; the third lacks a run, and the last all."""


def results(*means: float) -> Results:
    """One run per mean, on two tasks that lie a tenth above and below it."""
    return Results({1001 + place: {"a": mean - 0.1, "b": mean + 0.1} for place, mean in enumerate(means)})


def swept() -> SweepReport:
    found = {
        "learning_rate-0.1": results(0.20, 0.21, 0.25),
        "learning_rate-0.2": results(0.80, 0.81, 0.82),
        "learning_rate-0.3": Results({1002: {"a": 0.6, "b": 0.8}, 1003: {"a": 0.77, "b": 0.97}}),
    }
    return SweepReport(TRIED, SEEDS, 2, judge("success", found), OUTCOMES)


def test_the_best_has_the_best_mean() -> None:
    assert swept().winner.values == {KEY: 0.2}


def test_of_equal_candidates_the_first_is_the_best() -> None:
    found = {name: results(0.5) for name in ("learning_rate-0.1", "learning_rate-0.2")}
    assert SweepReport(TRIED[:2], [1001], 2, judge("success", found)).winner is TRIED[0]


def test_every_candidate_is_compared_with_the_best() -> None:
    report = swept()
    assert [report.than_best(each.name) for each in TRIED] == [
        "lower",
        "the best",
        "not distinguishable",
        "left out",
    ]
    assert "Not distinguishable from it: learning_rate-0.3. The best of several is partly lucky" in report.finding()


def test_the_table_has_a_row_for_each_candidate() -> None:
    table = swept().table()
    assert table.columns == ["learning_rate", "success", "95 % interval", "against the best"]
    assert [row[:2] for row in table.rows] == [["0.1", "0.22"], ["0.2", "0.81"], ["0.3", "0.78"], ["0.4", "–"]]
    assert table.notes[:4] == [
        "On the 2 validation tasks; the interval is over the seeds 1001, 1002, 1003.",
        "1 of 3 runs of learning_rate-0.1 was ended by no_signal.",
        "1 of 3 runs of learning_rate-0.3 was left out, by a fault (mismatch).",
        "3 of 3 runs of learning_rate-0.4 were left out, by a fault (not_finite).",
    ]


def test_the_files_hold_every_run() -> None:
    written = json.loads(swept().to_json())
    assert written["best"] == {KEY: 0.2} and written["split"] == "validation"
    assert written["candidates"][0]["runs"].keys() == {"1001", "1002", "1003"}
    assert written["candidates"][0]["ended"] == {"1002": {"iteration": 4, "by": "no_signal"}}
    assert written["candidates"][1].keys() == {"name", "values", "than_best", "mean", "interval", "runs"}
    assert written["candidates"][2]["runs"] == {"1002": 0.7, "1003": 0.87}
    assert written["candidates"][3] == {
        "name": "learning_rate-0.4",
        "values": {KEY: 0.4},
        "than_best": "left out",
        "left_out": dict.fromkeys(("1001", "1002", "1003"), "too long a step"),
    }
    lines = swept().to_csv().decode().splitlines()
    assert lines[0] == f"{KEY},seed,success" and len(lines) == 9
    assert lines[1].startswith("0.1,1001,0.2")
