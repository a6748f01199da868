"""What other settings would make of a rollout, as tables for the terminal."""

from __future__ import annotations

from turnwise.reporting.data.tables import TextTable
from turnwise.reporting.formatting import UNDEFINED, number, signed
from turnwise.results.what_if import TurnFigures, WhatIf

MOST_TURNS, MOST_COLUMNS = 12, 4
"""Turns that are shown, and rules that stand in columns; the page has all."""


def what_if_tables(what_if: WhatIf) -> list[TextTable]:
    """Tables of settings that differ, of advantages, turn by turn too, and of the first step; none that is empty."""
    names = [rule.name for rule in what_if.rules]
    settings = [[each.key, *(each.values.get(name, UNDEFINED) for name in names)] for each in what_if.settings]
    advantages = [
        [
            rule.name,
            str(rule.trajectories),
            str(rule.turns),
            number(rule.size, 3),
            _share(rule.zero_share),
            _number(rule.correlation, 2),
            _share(rule.opposite_share),
        ]
        for rule in what_if.rules
    ]
    longest = max((len(rule.by_turn) for rule in what_if.rules), default=0)
    by_turn = [
        [f"turn {place + 1}", *(_of_turn(rule.by_turn[place : place + 1]) for rule in what_if.rules)]
        for place in range(min(longest, MOST_TURNS))
    ]
    headings = ["", *names]
    if len(names) > MOST_COLUMNS:
        by_turn = [[name, *cells] for name, *cells in zip(*([names, *(row[1:] for row in by_turn)]), strict=True)]
        headings = ["", *(f"turn {place + 1}" for place in range(min(longest, MOST_TURNS)))]
    steps = [
        [
            name,
            *(
                ["no gradient", *[UNDEFINED] * 4]
                if step is None
                else [
                    f"{step['gradient_norm']:.3g}",
                    _number(what_if.cosines.get(name), 3),
                    _share(step.get("clip_fraction_low")),
                    _share(step.get("clip_fraction_high")),
                    _number(step.get("approximate_kl"), 5),
                ]
            ),
        ]
        for name, step in what_if.steps.items()
    ]
    first = names[0] if names else ""
    further = [f"{longest - MOST_TURNS} further turns are on the page."] if longest > MOST_TURNS else []
    of_page = [*what_if.notes, *(f"{name} is left out: {reason}" for name, reason in what_if.left_out.items())]
    tables = [
        TextTable("settings", "What is set otherwise", ["", *names], settings),
        TextTable(
            "advantages",
            "Advantages",
            ["", "episodes", "turns", "mean size", "at 0", "correlation", "opposite"],
            advantages,
            [f"Correlation, and turns of the opposite sign: with {first}."] if len(names) > 1 else [],
        ),
        TextTable("turns", "Turn by turn: mean ± deviation", headings, by_turn, further),
        TextTable(
            "steps",
            "The first step of the whole batch",
            ["", "gradient", "cosine", "clip low", "clip high", "KL"],
            steps,
            [f"Cosine: with the gradient of {first}. Clip shares, and KL in nats per token: after the step."],
        ),
    ]
    filled = [table for table in tables if table.rows]
    filled[-1].notes.extend(of_page)
    return filled


def _of_turn(found: list[TurnFigures]) -> str:
    return f"{signed(found[0].mean, 2)} ± {number(found[0].deviation, 2)}" if found else UNDEFINED


def _share(value: float | None) -> str:
    return UNDEFINED if value is None else f"{number(100 * value, 1)} %"


def _number(value: float | None, digits: int) -> str:
    return UNDEFINED if value is None else number(value, digits)
