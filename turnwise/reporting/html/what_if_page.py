"""The page of `turnwise what-if`: rules in numbers, and their advantages side by side in the trajectory viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.reporting.html.rendering import render
from turnwise.reporting.token_heat_map import largest_advantage
from turnwise.results.report_data import Sample
from turnwise.results.what_if import WhatIf
from turnwise.store.atomic_write import write_whole

WHAT_IF_FILES = ("what_if.json", "what_if.html")
Compared = Mapping[str, Sample]
"""One trajectory, by rule: with that rule's advantages."""


def write_what_if(what_if: WhatIf, episodes: Sequence[Compared], count: int, folder: Path) -> None:
    """Write `WHAT_IF_FILES` into a folder, which is made where it is missing. `episodes`: a sample of `count`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(WHAT_IF_FILES, (what_if.to_json(), what_if_page(what_if, episodes, count)), strict=True):
        write_whole(folder / name, text)


def what_if_page(what_if: WhatIf, episodes: Sequence[Compared], count: int) -> str:
    """The page as HTML text."""
    names = [rule.name for rule in what_if.rules]
    return render(
        "what_if.html.jinja",
        title=what_if.title,
        what_if=what_if,
        turns=max((len(rule.by_turn) for rule in what_if.rules), default=0),
        tasks=_by_task(episodes),
        shown=len(episodes),
        count=count,
        # Rules differ in scale by orders of magnitude: each has a colour scale of its own.
        scales={name: largest_advantage([each[name] for each in episodes if name in each]) for name in names},
    )


def _by_task(episodes: Sequence[Compared]) -> dict[str, list[Compared]]:
    tasks: dict[str, list[Compared]] = {}
    for episode in episodes:
        sample = next(iter(episode.values()))
        tasks.setdefault(sample.trajectory.task.id, []).append(episode)
    return tasks
