"""Episodes in the terminal, turn by turn: one below the other, or episodes of the same task in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from turnwise.reporting.data.episodes import ShownEpisode, by_task
from turnwise.reporting.formatting import ending, reply_log_probability, signed, turn_title, visible
from turnwise.reporting.token_heat_map import ABOVE, BELOW, STEPS, largest_advantage, rarity, step, token_advantages
from turnwise.results.report_data import Sample

LINES, CHARACTERS = 12, 2000
"""Maximum lines and characters shown of one passage."""
NARROWEST_COLUMN = 44
LABEL = len("observation")


def print_episodes(episodes: Sequence[ShownEpisode], console: Console, in_columns: bool = False) -> None:
    """Print the episodes by task; with `in_columns`, those of a task in as many columns as fit the console's width."""
    largest = largest_advantage([episode.sample for episode in episodes])
    for task, task_episodes in by_task(episodes).items():
        console.print(Rule(Text(visible(task)), style="dim", align="left"))
        columns = max(1, min(len(task_episodes), console.width // NARROWEST_COLUMN)) if in_columns else 1
        for first in range(0, len(task_episodes), columns):
            row = Table.grid(padding=(0, 3, 1, 0), expand=columns > 1)
            for _ in range(columns):
                row.add_column(ratio=1, overflow="fold")
            row.add_row(*(_episode(episode, largest) for episode in task_episodes[first : first + columns]))
            console.print(row)


def print_instructions(instructions: Mapping[str, str], console: Console) -> None:
    """Print what policies were shown before the first observation, whole; `instructions` maps it to their names."""
    for text, policies in instructions.items():
        console.print(Rule(Text(f"before the first observation · {visible(policies)}"), style="dim", align="left"))
        console.print(Text(visible(text).rstrip(), style="dim"))
        console.print()


def _episode(episode: ShownEpisode, largest: float) -> RenderableType:
    trajectory = episode.sample.trajectory
    parts: list[RenderableType] = [
        Text.assemble((visible(episode.policy), "bold"), f" · {episode.when}"),
        Text(ending(episode.ending), style="bold" if trajectory.success else ""),
    ]
    for place in range(len(trajectory.turns)):
        parts += [Text(), _heading(episode.sample, place), _turn(episode.sample, place, largest)]
    if trajectory.final_observation:
        last = _grid()
        last.add_row("world", _passage(trajectory.final_observation, "dim"))
        parts.append(last)
    return Group(*parts)


def _grid() -> Table:
    """An empty table of passages with two columns: label and text."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=LABEL, style="dim")
    grid.add_column(overflow="fold")
    return grid


def _turn(sample: Sample, place: int, largest: float) -> Table:
    turn = sample.trajectory.turns[place]
    grid = _grid()
    grid.add_row("observation", _passage(turn.observation, "dim"))
    if turn.thought:
        grid.add_row("thought", _passage(turn.thought, "italic"))
    for action in turn.actions:
        grid.add_row("action", _passage(action, "bold"))
    if turn.invalid is not None:
        grid.add_row("reply", _passage(turn.reply, ""))
        grid.add_row("invalid", _passage(turn.invalid, "red"))
    if sample.spelling is not None and sample.spelling[place]:
        grid.add_row("tokens", _heat_line(sample.spelling[place], sample, place, largest))
    if turn.rewards:
        grid.add_row("rewards", _passage(_rewards(sample, turn.rewards), ""))
    return grid


def _heading(sample: Sample, place: int) -> Text:
    parts = [turn_title(sample.trajectory, place)]
    if sample.advantages is not None:
        parts.append(f"advantage {signed(sample.advantages[place], 2)}")
    parts.append(reply_log_probability(sample.trajectory.turns[place]))
    return Text(" · ".join(parts), style="underline")


def _passage(content: str, style: str) -> Text:
    whole = visible(content)
    excerpt = "\n".join(whole.splitlines()[:LINES])[:CHARACTERS]
    left_out = len(whole.rstrip()) - len(excerpt)
    more = f" … ({left_out:,} more characters)" if left_out > 0 else ""
    return Text.assemble((excerpt, style), (more, "dim"))


def _rewards(sample: Sample, rewards: Mapping[str, float]) -> str:
    parts = []
    for name, value in sorted(rewards.items()):
        rule = sample.rewards.get(name)
        parts.append(f"{name} {value:g} × {rule.weight:g} ({rule.level})" if rule else f"{name} {value:g}")
    return ", ".join(parts)


def _heat_line(spelling: Sequence[str], sample: Sample, place: int, largest: float) -> Text:
    turn = sample.trajectory.turns[place]
    line = Text()
    tokens = zip(spelling, token_advantages(sample, place), turn.log_probabilities, strict=True)
    for text, advantage, log_probability in tokens:
        tint = None if advantage is None else _tint(step(advantage, largest))
        line.append(visible(text), Style(bgcolor=tint, underline=rarity(log_probability) > 0))
    return line


def _tint(size: int) -> str | None:
    """The background colour of a step, readable in dark and light terminals; None (the terminal's own) for step 0."""
    if size == 0:
        return None
    red, green, blue = (round(part * (0.35 + 0.65 * abs(size) / STEPS)) for part in (ABOVE if size > 0 else BELOW))
    return f"rgb({red},{green},{blue})"
