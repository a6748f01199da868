"""What other settings would make of a rollout, as tables for the terminal and for a page."""

from __future__ import annotations

from turnwise.reporting.data.tables import TextTable
from turnwise.reporting.formatting import UNDEFINED, number, signed
from turnwise.results.what_if import TurnFigures, WhatIf

MOST_TURNS, MOST_COLUMNS = 12, 4
"""Turns that the terminal shows, and rules that stand there in columns; a page has all."""


def what_if_tables(what_if: WhatIf, whole: bool = False) -> list[TextTable]:
    """Tables of settings that differ, of advantages, turn by turn too, and of the first step; none that is empty.

    `whole`, as on a page: with all turns, and of each how many there were and how the rules' advantages correlate.
    """
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
    turns = range(longest if whole else min(longest, MOST_TURNS))
    by_turn = [
        [f"turn {place + 1}", *(_format_turn(rule.by_turn[place : place + 1], whole) for rule in what_if.rules)]
        for place in turns
    ]
    headings = ["", *names]
    if len(names) > MOST_COLUMNS and not whole:
        by_turn = [[name, *cells] for name, *cells in zip(*([names, *(row[1:] for row in by_turn)]), strict=True)]
        headings = ["", *(f"turn {place + 1}" for place in turns)]
    steps = [
        [
            name,
            *(
                ["no gradient:\nall advantages are 0", *[UNDEFINED] * 4]
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
    correlation_note = (
        f" Correlation, and turns of the opposite sign: with {first}, on turns that both have." if names[1:] else ""
    )
    further = [f"{longest - len(turns)} further turns are on the page."] if longest > len(turns) else []
    notes = what_if.notes or ([] if what_if.steps else ["No gradients were compared."])
    left_out = [f"{name} is left out: {reason}" for name, reason in what_if.left_out.items()]
    tables = [
        TextTable("settings", "What is set otherwise", ["", *names], settings),
        TextTable(
            "advantages",
            "Advantages",
            ["", "episodes", "turns", "mean size", "at 0", "correlation", "opposite"],
            advantages,
            [f"Mean size: the mean of |advantage| over turns.{correlation_note}"],
        ),
        TextTable("turns", "Turn by turn: mean ± deviation", headings, by_turn, further),
        TextTable(
            "steps",
            "The first step of the whole batch",
            ["", "gradient", "cosine", "clip low", "clip high", "KL"],
            steps,
            [
                "With the policy and the optimizer's state of that iteration. Cosine: with the gradient of "
                f"{first}. Clip shares: of reply tokens that the clips would hold in a second pass. KL: between the "
                "policy before and after the step, in nats per reply token."
            ],
        ),
    ]
    filled_tables = [table for table in tables if table.rows]
    filled_tables[-1].notes.extend([*notes, *left_out])
    return filled_tables


def _format_turn(figures: list[TurnFigures], whole: bool) -> str:
    if not figures:
        return UNDEFINED
    (turn,) = figures
    correlation = "" if turn.correlation is None else f", correlation {number(turn.correlation, 2)}"
    count_line = f"\n{turn.count} turn{'' if turn.count == 1 else 's'}{correlation}" if whole else ""
    return f"{signed(turn.mean, 2)} ± {number(turn.deviation, 2)}{count_line}"


def _share(value: float | None) -> str:
    return UNDEFINED if value is None else f"{number(100 * value, 1)} %"


def _number(value: float | None, digits: int) -> str:
    return UNDEFINED if value is None else number(value, digits)
