"""A suite as tables for the terminal: measures over all worlds, and scores world by world."""

from __future__ import annotations

from turnwise.reporting.data.suites import SuiteReport
from turnwise.reporting.formatting import UNDEFINED
from turnwise.reporting.terminal.tables import TextTable
from turnwise.reporting.terminal.verdicts import cell


def suite_tables(report: SuiteReport) -> list[TextTable]:
    """The tables of a suite, without empty ones."""
    by_world = TextTable(
        "worlds",
        "World by world: random = 0, oracle = 1",
        ["", *report.worlds],
        [[rule, *(cell(report.cells[rule].get(world)) for world in report.worlds)] for rule in report.rules],
        [f"Means over seeds with Student's t intervals; {UNDEFINED} where nothing is recorded."],
    )
    if report.suite is None:
        return [by_world]
    measures = TextTable(
        "measures",
        f"Over {', '.join(report.suite.worlds)}",
        ["", "inter-\nquartile\nmean", "mean", "optimality\ngap", "rank"],
        [
            [rule.name, *map(cell, (rule.interquartile_mean, rule.mean, rule.optimality_gap, rule.rank))]
            for rule in report.suite.rules
        ],
        [
            "Intervals are of a bootstrap within each world; with few runs they are too narrow, so no verdict follows "
            "from them."
        ],
    )
    chances = TextTable(
        "improvement",
        "Probability that a run of the first is better",
        ["", "P(better)"],
        [[f"{one} over {other}", cell(chance)] for one, other, chance in report.suite.improvement],
    )
    return [measures, *([chances] if chances.rows else []), by_world]
