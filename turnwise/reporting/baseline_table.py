"""The page on baselines: the recorded scores of every world's baseline policies, as Markdown.

The record is a JSON file with one line for each world, setting and policy. The page is a function of the record and of
success rates that others have published.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from turnwise.checking.baselines import Score
from turnwise.reporting.formatting import number
from turnwise.statistics import Interval

RECORD_FILE = "baselines.json"
DEFAULT = "default"
"""The name shown for a world's default setting, whose own name is empty."""


@dataclass(frozen=True)
class BaselineRow:
    """The record of one baseline policy in one world and setting."""

    world: str
    version: str
    setting: str
    """A preset's name; empty: the world's defaults."""
    code: str
    """Digest of the code that computed the line; if it differs from today's, the line is out of date."""
    uniform: str
    """What the world's random policy draws from uniformly, in the world's own words."""
    score: Score

    @property
    def key(self) -> tuple[str, str, str]:
        """(world, setting, policy); the record has one line for each."""
        return (self.world, self.setting, self.score.player)


@dataclass(frozen=True)
class KnownFigure:
    """A success rate published elsewhere, as a range; a single figure is a range of width 0."""

    world: str
    setting: str
    player: str
    low: float
    high: float
    source: str
    difference: str
    """Why ours may differ; shown if our interval does not overlap the range."""


def write_lines(lines: Sequence[BaselineRow]) -> str:
    """The record as JSON text."""
    return json_lines(lines)


def read_lines(text: str) -> list[BaselineRow]:
    """The record that `write_lines` wrote. Raises pydantic's ValidationError for other text."""
    return TypeAdapter(list[BaselineRow]).validate_json(text)


def page(lines: Sequence[BaselineRow], known: Sequence[KnownFigure]) -> str:
    """The whole page as Markdown."""
    figures = [*_known(lines, known), ""] if known else []
    return "\n".join([INTRODUCTION, *_table(lines), "", *figures, *_random_players(lines), ""])


INTRODUCTION = """# Baselines

Made by `turnwise baselines`; a change here is lost. What the scripted players reach on each world's own test panel,
under its own limits: a random player, who reads nothing, and an oracle, who knows the answer. A trained policy that is
not above the first has learned nothing, and one near the second has nothing left to learn.

Success is the share of episodes that the world calls solved; the return is the sum of its rewards with the weights that
its authors gave them; turns are decisions. In brackets the 95 % interval over tasks: Wilson's for a share whose tasks
were played once each, else the percentile bootstrap's. Where all tasks give the same there is no interval.
"""


def _table(lines: Sequence[BaselineRow]) -> list[str]:
    rows = [
        [
            f"`{line.world}`",
            line.setting or DEFAULT,
            line.score.player,
            told(line.score.success, 3),
            told(line.score.rewards, 2),
            told(line.score.turns, 1),
            f"{line.score.tasks:,}",
            f"{line.score.episodes:,}",
        ]
        for line in lines
    ]
    return markdown_table(["world", "setting", "player", "success", "return", "turns", "tasks", "episodes"], rows)


def _known(lines: Sequence[BaselineRow], known: Sequence[KnownFigure]) -> list[str]:
    recorded = {line.key: line for line in lines}
    rows = []
    for figure in known:
        line = recorded.get((figure.world, figure.setting, figure.player))
        what = f"{figure.player} on `{figure.world}`, {figure.setting or DEFAULT}"
        ours = told(line.score.success, 3) if line else "not recorded"
        rows.append([what, _range(figure), figure.source, ours, verdict(line.score.success, figure) if line else ""])
    head = "## Figures that others have published"
    return [head, "", *markdown_table(["what", "theirs", "source", "ours", "does our interval cover it?"], rows)]


def _random_players(lines: Sequence[BaselineRow]) -> list[str]:
    said = {line.world: line.uniform for line in lines if line.score.player == "random"}
    rows = [[f"`{world}`", uniform] for world, uniform in said.items()]
    return ["## What the random players draw from", "", *markdown_table(["world", "a random decision"], rows)]


def verdict(ours: Interval, figure: KnownFigure) -> str:
    """Whether our interval overlaps the published range, and if not, the possible reason."""
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low <= figure.high and figure.low <= high:
        return "yes"
    return f"no, ours is {'higher' if low > figure.high else 'lower'}: {figure.difference}"


def told(interval: Interval, digits: int) -> str:
    """A value with its bounds: `0.181 (0.171 to 0.192)`."""
    value = number(interval.value, digits)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({number(interval.low, digits)} to {number(interval.high, digits)})"


def _range(figure: KnownFigure) -> str:
    low, high = number(figure.low, 3), number(figure.high, 3)
    return low if low == high else f"{low} to {high}"


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""
    return [_row(heading), _row(["---"] * len(heading)), *(_row(row) for row in rows)]


def json_lines(record: Sequence[Any]) -> str:
    """Data classes as a JSON list with one line for each, so that a diff shows only the records that changed."""
    rows = ",\n".join(json.dumps(dataclasses.asdict(line), ensure_ascii=False, allow_nan=False) for line in record)
    return f"[\n{rows}\n]\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
