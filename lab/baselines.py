"""`turnwise baselines`: play the baseline policies of every installed world, record their success, write the page.

A recorded line is played again only if its world's code has changed or a different number of episodes is asked for. The
lines of worlds that cannot be made here, for want of Java or a browser, say, are kept too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from flows.commands.progress_line import showing_progress
from flows.commands.worlds import installed
from turnwise.checking.baselines import RECORD_FILE, BaselineRow, json_lines, recorded_baselines, score
from turnwise.config.overlays import read_yaml
from turnwise.reporting.formatting import with_bounds
from turnwise.reporting.markdown import render
from turnwise.statistics import Interval
from turnwise.store.atomic_write import write_whole
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint
from turnwise.world import World, make_world, with_preset, world_class

PAGE_FILE, KNOWN_FILE = "baselines.md", "known-figures.yaml"
SEED = 0
RANDOM_EPISODES = 5000
OTHER_EPISODES = 1000
FEWER_EPISODES = {"babyai": (2000, 500), "sciworld": (100, 50), "browser": (200, 100)}
"""(random baseline, every other baseline): episodes in worlds where one takes from 10 ms to some seconds."""
DEFAULT = "default"
"""The name shown for a world's default setting, whose own name is empty."""


def record_baselines(names: Sequence[str], folder: Path, episodes: int | None = None) -> None:
    """Update `baselines.json` and `baselines.md` in a folder, for these worlds or for all that are installed.

    `episodes` overrides the numbers above for every baseline. The files are written after each world.
    """
    console = Console(highlight=False, soft_wrap=True)
    lines = recorded_baselines(folder)
    for world in installed(names):
        if world.lacks is not None:
            console.print(f"{world.name}: left as it was, since it {world.lacks}")
            continue
        own = _lines_of(world.name, episodes, {line.key: line for line in lines}, console)
        lines = [*(line for line in lines if line.world != world.name), *own]
        _write(folder, lines)


def settings_of(world: type[World]) -> tuple[str, ...]:
    """The settings in which a world is played: its defaults, named "", and the presets that differ from them."""
    usual = {name: each.default for name, each in inspect.signature(world).parameters.items()}
    different = [
        preset
        for preset, parameters in world.presets.items()
        if any(name not in usual or not _same(usual[name], value) for name, value in parameters.items())
    ]
    return ("", *different)


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a parameter are equal; a list equals a tuple of the same values."""
    return list(one) == list(other) if isinstance(one, tuple) and isinstance(other, list) else bool(one == other)


def _lines_of(
    name: str, episodes: int | None, before: Mapping[tuple[str, str, str], BaselineRow], console: Console
) -> list[BaselineRow]:
    """The lines of one world, each kept as it was if nothing has changed."""
    lines = []
    for setting in settings_of(world_class(name)):
        parameters = with_preset(name, setting, {})
        world = make_world(name, parameters)
        for baseline in world.baselines:
            random, others = FEWER_EPISODES.get(name, (RANDOM_EPISODES, OTHER_EPISODES))
            count = episodes or (random if baseline == "random" else others)
            player_code = fingerprint([*world_class(name).modules(parameters), "turnwise.checking.baselines"])
            code = digest_of([player_code, count])
            line = before.get((name, setting, baseline))
            if line is None or line.code != code:
                with showing_progress():
                    baseline_score = score(world, baseline, count, SEED)
                line = BaselineRow(name, world.version, setting, code, _uniform(world), baseline_score)
                summary = f"success {with_bounds(line.score.success, 3)}, {line.score.episodes} episodes"
                console.print(f"{name} {setting or DEFAULT} {baseline}: {summary}")
            lines.append(line)
    return lines


def _uniform(world: World) -> str:
    """How the world describes its random baseline: the docstring of its environment's `random`."""
    (task,) = world.tasks("test", 1)
    with closing(world.make(task, SEED)) as environment:
        return " ".join((inspect.getdoc(type(environment).random) or "").split())


def _write(folder: Path, lines: list[BaselineRow]) -> None:
    """Write both files, sorted by world; within a world, settings and baselines are in the world's order."""
    ordered = sorted(lines, key=lambda line: line.world)
    known_file = folder / KNOWN_FILE
    figures = read_yaml(known_file)["figures"] if known_file.is_file() else []
    known = TypeAdapter(list[KnownFigure]).validate_python(figures)
    write_whole(folder / RECORD_FILE, json_lines(ordered))
    write_whole(folder / PAGE_FILE, page(ordered, known))


@dataclass(frozen=True)
class KnownFigure:
    """A success rate published elsewhere, as a range; a single figure is a range of width 0."""

    world: str
    setting: str
    baseline: str
    low: float
    high: float
    source: str
    difference: str
    """Why ours may differ; shown if our interval does not overlap the range."""


def page(lines: Sequence[BaselineRow], known: Sequence[KnownFigure]) -> str:
    """The whole page as Markdown."""
    successes = {line.key: line.score.success for line in lines}
    published = [(figure, successes.get((figure.world, figure.setting, figure.baseline))) for figure in known]
    return render(
        "lab",
        "baselines.md.jinja",
        default=DEFAULT,
        lines=lines,
        known=[(figure, ours, verdict(ours, figure) if ours else "") for figure, ours in published],
        random_decisions={line.world: line.uniform for line in lines if line.score.baseline == "random"},
    )


def verdict(ours: Interval, figure: KnownFigure) -> str:
    """Whether our interval overlaps the published range, and if not, the possible reason."""
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low <= figure.high and figure.low <= high:
        return "yes"
    return f"no, ours is {'higher' if low > figure.high else 'lower'}: {figure.difference}"
