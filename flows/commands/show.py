"""`turnwise show`: look at the episodes of recorded runs, in the terminal or as a page that opens offline.

turnwise show                                      the last batch of the latest ablation's first run
turnwise show "mt-grpo seed 1" --failure           those that did not solve their task
turnwise show "mt-grpo seed 1" --task lake/17      one task over the iterations, an episode of each
turnwise show "mt-grpo seed 1" --against oracle    two policies on the same tasks, side by side
turnwise show credit --html episodes.html          a page of the whole ablation, to filter and to compare in
"""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console

from flows.recording.record import recorded_here, recorded_store
from flows.recording.recorded_episodes import asked_for, instructions, legible, paired, sample_of
from turnwise.errors import ConfigurationError
from turnwise.reporting.data.episodes import Wanted, over_iterations, whole_tasks
from turnwise.reporting.terminal.episodes import print_episodes, print_instructions

IN_THE_TERMINAL, ON_THE_PAGE = 4, 300
"""Default numbers of episodes."""


def show_episodes(
    which: str, wanted: Wanted, against: str | None, limit: int | None, html: Path | None, tracking: str | None
) -> None:
    """Print the episodes of recorded runs, or write them as a page.

    Args:
        which: id, name or tag of a run or an ablation; empty for the latest.
        wanted: which of its episodes.
        against: a run or a baseline policy whose episodes on the same tasks are printed next to them.
        limit: the number of episodes, or None for the default.
        html: the file of the page, or None for the terminal.
        tracking: MLflow's store, or None for the project's own.
    """
    console = Console()
    uri = recorded_store(tracking)
    runs = recorded_here(uri, which)
    title = f"{runs[0].ablation}: {runs[0].name}" if len(runs) == 1 else runs[0].ablation
    if html is not None:
        from turnwise.reporting.html.episodes_page import write_episodes

        chosen, count = sample_of(runs, wanted, limit or ON_THE_PAGE)
        write_episodes(title, chosen, count, html, instructions(runs, chosen))
        console.print(f"{len(chosen)} of {count:,} episodes in {html}", highlight=False, soft_wrap=True)
        return
    if against is not None:
        others = [] if against in runs[0].baselines else recorded_here(uri, against)[:1]
        chosen, count = paired(runs[0], others, against, wanted, limit or IN_THE_TERMINAL)
        print_instructions(instructions([runs[0], *others], chosen), console)
        print_episodes(chosen, console, in_columns=True)
        console.print(f"{len(chosen) // 2} of {count:,} tasks that both have played", style="dim", highlight=False)
        return
    found = asked_for(runs, wanted)
    chosen = found if wanted.task is None else over_iterations(found)
    limit = limit or (IN_THE_TERMINAL if wanted.task is None else len(chosen))
    chosen = legible(runs, whole_tasks(chosen, limit))
    print_instructions(instructions(runs, chosen), console)
    print_episodes(chosen, console)
    console.print(f"{len(chosen)} of {len(found):,} episodes that were asked for", style="dim", highlight=False)


def iteration_range(text: str | None) -> tuple[int, int] | None:
    """The first and last iteration of `10` or `10-20`. Raises ConfigurationError for other text."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (first.isdigit() and (last.isdigit() or not dash)):
        raise ConfigurationError(f"--iteration must be a number or a range such as 10-20; found {text!r}")
    return int(first), int(last or first)


def advantage_range(text: str | None) -> tuple[float, float] | None:
    """The bounds of `A..B`, infinite where one is missing. Raises ConfigurationError for other text."""
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        bounds = float(low or -math.inf), float(high or math.inf)
    except ValueError:
        dots = ""
    if not dots or math.isnan(bounds[0]) or math.isnan(bounds[1]):
        raise ConfigurationError(f"--advantage must be a range such as 0.5.. or -1..0; found {text!r}")
    return bounds
