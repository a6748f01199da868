"""The study's tables, page and figure: they fit, they say what is undefined, and they are the same every time."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from turnwise.credit import CreditBatch
from turnwise.credit_study.figures import credit_figure, header, rows
from turnwise.credit_study.page import page, print_study
from turnwise.credit_study.study import Study, examine
from turnwise.credit_study.truth import Decisions, Truth


def study(turns: int, tasks: int = 5) -> Study:
    """Trajectories that differ in length, up to `turns`; the outcome of the first task is the same for all."""
    generator = np.random.default_rng(turns)
    group = [task for task in range(tasks) for _ in range(4)]
    lengths = [1 + (index % turns) for index in range(len(group))]
    batch = CreditBatch(
        group=group,
        turn_rewards=[generator.normal(size=length).tolist() for length in lengths],
        outcome=[float(task and generator.integers(2)) for task in group],
        reply_lengths=[[2] * length for length in lengths],
        anchors=[["state"] * length for length in lengths],
    )
    advantages = [generator.normal(size=length).tolist() for length in lengths]
    truth = Truth(advantages, [[0.05] * length for length in lengths])
    states = [[task] * length for task, length in zip(group, lengths, strict=True)]
    return examine(
        batch, truth, generator.normal(size=(sum(lengths), 16)), Decisions(states, states), turn_limit=turns, seed=0
    )


def printed(found: Study, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_study(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("turns", [1, 2, 4, 20])
def test_the_tables_fit_into_a_terminal_of_eighty_characters(turns: int) -> None:
    text = printed(study(turns), 80)
    assert max(map(len, text.splitlines())) <= 80
    # Nothing was cut to make them fit: what is shown is what a wide terminal shows.
    assert set(printed(study(turns), 200).split()) == set(text.split())


def test_what_is_left_out_is_said_with_its_reason() -> None:
    for text in (printed(study(3), 200), page(study(3), {}, "figure.png")):
        for name in ("gae", "turn-gae", "bi-level-gae", "mt-grpo, paper"):
            assert name in text
        assert "of which these episodes have no values" in text and "at most two turns; this world allows 3" in text


def test_the_page_names_what_it_was_made_from_and_its_picture() -> None:
    text = page(study(2), {"world": "a lake", "policy": "policy/1234"}, "figure.png")
    assert "| world | a lake |" in text and "| policy | policy/1234 |" in text
    assert "](figure.png)" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in table)


def test_the_table_has_a_number_or_nothing_in_every_cell() -> None:
    found = study(3)
    assert len(header(found)) == len(set(header(found)))
    assert header(found)[-1] == "slope_turn_3"
    for row in rows(found):
        assert len(row) == len(header(found))
        assert all(cell is None or np.isfinite(cell) for cell in row[1:])  # type: ignore[arg-type]


def test_the_figure_has_a_row_for_every_rule_and_the_same_bytes_every_time() -> None:
    found = study(4)
    figure = credit_figure(found)
    names = [label.get_text() for label in figure.draw(True).axes[0].get_yticklabels()]
    assert names == [figures.title for figures in found.figures[1:]]
    assert figure.png() == credit_figure(Study.from_json(found.to_json())).png()


def test_rules_without_signal_are_drawn_as_not_defined() -> None:
    silent = CreditBatch(
        group=[0, 0, 1, 1], turn_rewards=[[0.0]] * 4, outcome=[1.0, 1.0, 0.0, 0.0], reply_lengths=[[1]] * 4
    )
    truth = Truth([[0.5], [-0.5], [0.1], [-0.1]], [[0.01]] * 4)
    found = examine(
        silent, truth, np.ones((4, 3)), Decisions([[0], [0], [1], [1]], [[0], [1], [2], [3]]), turn_limit=1, seed=0
    )
    axes = credit_figure(found).draw(True).axes[0]
    assert [text.get_text() for text in axes.texts].count("not defined") >= 5
    assert printed(found, 80).count("–") >= 10
    credit_figure(found).png()
