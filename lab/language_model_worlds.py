"""The worlds in which the real language model was trained: a table and a figure of what learning did to greedy success.

    python -m lab.language_model_worlds       draws docs/science/smollm2-worlds.png and prints the table

Everything is read from the recorded results; a test holds the table at the top of docs/science/smollm2.md to them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from turnwise.project import project_root
from turnwise.reporting.figures.drawing import COLOURS, GREY, Figure, axes_of, label_rows, legend_below
from turnwise.store.atomic_write import write_whole

RESULTS: Mapping[str, tuple[str, str]] = {
    "`search`, chains of two and three facts": ("smollm2-search-seeds", "grpo-or"),
    "`textcraft`, one craft deep": ("smollm2-textcraft-longer", "grpo-or"),
    "`bandit`, arms with names that training has not": ("smollm2-bandit-names", "grpo-or"),
    "`babyai`, one thing in a room": ("smollm2-babyai-one-thing", "grpo-or"),
    "`webshop`, 300 products": ("smollm2-webshop", "grpo-or"),
    "`sokoban`, one box in a room of 6 by 6": ("smollm2-sokoban-larger", "mt-grpo"),
}
"""By world, the folder in `results` that decides, and the variant that is shown: `grpo-or` where it gains."""
FIGURE = Path("docs/science/smollm2-worlds.png")


class Estimate(NamedTuple):
    """A value and the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """Greedy success on the test tasks of one world."""

    before: Estimate
    """Of the warm start, over tasks."""
    after: Estimate
    """Of the trained policies, over seeds."""
    difference: Estimate
    """Of the second to the first, over seeds and tasks."""


def gains(results: Path) -> dict[str, Gain]:
    """What was recorded of each world of `RESULTS`, in their order."""
    return {world: _gain(results / folder, variant) for world, (folder, variant) in RESULTS.items()}


def _gain(folder: Path, variant: str) -> Gain:
    rows = [row for row in _read_rows(folder / "table.csv") if row["column"].startswith("greedy ")]
    (before,) = (row for row in rows if row["kind"] == "warm start")
    (after,) = (row for row in rows if row["row"] == variant)
    (verdict,) = (
        row
        for row in _read_rows(folder / "verdicts.csv")
        if row["measure"] == after["column"] and (row["first"], row["second"]) == (variant, "warm start")
    )
    return Gain(_estimate(before, "value"), _estimate(after, "value"), _estimate(verdict, "difference"))


def _read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _estimate(row: Mapping[str, str], value: str) -> Estimate:
    return Estimate(float(row[value]), float(row["low"]), float(row["high"]))


def table_rows(world_gains: Mapping[str, Gain]) -> list[str]:
    """A Markdown row for each world: before, after, and the difference with its interval."""
    rows = []
    for world, gain in world_gains.items():
        value, low, high = gain.difference
        change = f"{value:+.2f} ({low:.2f} to {high:.2f})"
        rows.append(f"| {world} | {gain.before.value:.2f} | {gain.after.value:.2f} | {change} |")
    return rows


def figure(world_gains: Mapping[str, Gain]) -> Figure:
    """A row for each world, with the warm start and the trained policies on one scale."""
    names = [world.split("`")[1] for world in world_gains]
    sides: Sequence[tuple[str, str, str]] = (
        ("warm start", "before", GREY),
        ("trained, three seeds", "after", COLOURS[0]),
    )

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(4.6, 0.42 * len(world_gains) + 0.75)
        for height, gain in enumerate(world_gains.values()):
            for (_, side, colour), shift in zip(sides, (-0.15, 0.15), strict=True):
                at: Estimate = getattr(gain, side)
                axes.plot([at.low, at.high], [height + shift] * 2, color=colour, linewidth=2.2, alpha=0.55)
                axes.plot([at.value], [height + shift], marker="o", color=colour, markersize=6.5)
        axes.set_title("greedy success on test tasks")
        label_rows(axes, names)
        axes.set_xlim(-0.03, 1.03)
        if legend:
            legend_below(
                drawing,
                [Line2D([], [], color=colour, marker="o", linewidth=2.2, label=name) for name, _, colour in sides],
            )
        return drawing

    described = "Greedy success before and after reinforcement: " + ", ".join(
        f"{name} {gain.before.value:.2f} to {gain.after.value:.2f}"
        for name, gain in zip(names, world_gains.values(), strict=True)
    )
    data: list[tuple[str | int | float | None, ...]] = [
        (name, side, at.value, at.low, at.high)
        for name, gain in zip(names, world_gains.values(), strict=True)
        for side, at in (("warm start", gain.before), ("trained", gain.after))
    ]
    return Figure("smollm2-worlds", described, ("world", "policy", "value", "low", "high"), data, draw)


def main() -> None:
    """Draw the figure and print the table."""
    root = project_root()
    world_gains = gains(root / "results")
    gain_figure = figure(world_gains)
    write_whole(root / FIGURE, gain_figure.png())
    print("\n".join([*table_rows(world_gains), gain_figure.description]))


if __name__ == "__main__":
    main()
