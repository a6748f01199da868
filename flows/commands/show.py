"""`turnwise show`: look at the episodes of recorded runs, in the terminal or as a page that opens offline.

turnwise show                                      the last batch of the latest ablation's first run
turnwise show "mt-grpo seed 1" --failure           those that did not solve their task
turnwise show "mt-grpo seed 1" --task lake/17      one task over the iterations, an episode of each
turnwise show "mt-grpo seed 1" --against oracle    two policies on the same tasks, side by side
turnwise show credit --html episodes.html          a page of the whole ablation, to filter and to compare in
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.arguments import one_of, whole
from turnwise.errors import ConfigurationError

IN_THE_TERMINAL, ON_THE_PAGE = 4, 300
"""Default numbers of episodes."""

if TYPE_CHECKING:
    from turnwise.reporting.data.episodes import Wanted


def add_show(commands: Any) -> None:
    """Add the command and its arguments."""
    show = commands.add_parser("show", help="look at the episodes of recorded runs")
    show.add_argument(
        "which",
        metavar="RUN",
        nargs="?",
        default="",
        help="id, name or tag of a run or an ablation (default: the latest)",
    )
    show.add_argument("--against", metavar="RUN", help="another run, a player of the world or `warm start`: beside it")
    solved = show.add_mutually_exclusive_group()
    solved.add_argument("--success", action="store_const", const=True, help="only what was solved")
    solved.add_argument("--failure", dest="success", action="store_const", const=False, help="only what was not")
    show.add_argument("--world", metavar="NAME", help="of a mixture, one of its worlds")
    show.add_argument("--ending", metavar="NAME", help="success, failure, turn_limit, ...")
    show.add_argument("--task", metavar="ID", help="one task over the iterations, an episode of each")
    show.add_argument("--panel", type=one_of("training", "validation", "test"), help="where it was played")
    show.add_argument("--mode", type=one_of("greedy", "sampled"), help="how the policy chose, on a panel")
    show.add_argument("--iteration", metavar="N or A-B", help="which iterations")
    show.add_argument("--advantage", metavar="A..B", help="one turn's lies between, e.g. 0.5.. or ..0 (of training)")
    show.add_argument(
        "--limit", type=whole(1), help=f"episodes (default: {IN_THE_TERMINAL}, or {ON_THE_PAGE} on a page)"
    )
    show.add_argument("--html", type=Path, metavar="FILE", help="write a page instead")
    show.add_argument("--tracking", metavar="URI", help="default: tracking.uri of params.yaml, or the project's own")
    show.set_defaults(run=show_episodes)


def show_episodes(parsed: argparse.Namespace) -> None:
    """Run the command."""
    from rich.console import Console

    from flows.recording.recorded_episodes import asked_for, legible, paired, sample_of
    from turnwise.reporting.data.episodes import over_iterations, whole_tasks
    from turnwise.reporting.html.episodes_page import write_episodes
    from turnwise.reporting.terminal.episodes import print_episodes
    from turnwise.tracking.finding import find_runs

    console = Console()
    wanted, uri = _wanted(parsed), parsed.tracking or recorded_in()
    runs = find_runs(uri, parsed.which)
    title = f"{runs[0].ablation}: {runs[0].name}" if len(runs) == 1 else runs[0].ablation
    if parsed.html is not None:
        chosen, count = sample_of(runs, wanted, parsed.limit or ON_THE_PAGE)
        write_episodes(title, chosen, count, parsed.html)
        console.print(f"{len(chosen)} of {count:,} episodes in {parsed.html}", highlight=False, soft_wrap=True)
        return
    if parsed.against is not None:
        others = [] if parsed.against in runs[0].players else find_runs(uri, parsed.against)[:1]
        chosen, count = paired(runs[0], others, parsed.against, wanted, parsed.limit or IN_THE_TERMINAL)
        print_episodes(chosen, console, in_columns=True)
        console.print(f"{len(chosen) // 2} of {count:,} tasks that both have played", style="dim", highlight=False)
        return
    found = asked_for(runs, wanted)
    chosen = found if wanted.task is None else over_iterations(found)
    limit = parsed.limit or (IN_THE_TERMINAL if wanted.task is None else len(chosen))
    chosen = legible(runs, whole_tasks(chosen, limit))
    print_episodes(chosen, console)
    console.print(f"{len(chosen)} of {len(found):,} episodes that were asked for", style="dim", highlight=False)


def _wanted(parsed: argparse.Namespace) -> Wanted:
    from turnwise.reporting.data.episodes import Wanted

    return Wanted(
        success=parsed.success,
        world=parsed.world,
        ending=parsed.ending,
        task=parsed.task,
        occasion=parsed.panel or ("training" if parsed.advantage else None),
        mode=parsed.mode,
        iterations=_iterations(parsed.iteration),
        advantage=_advantages(parsed.advantage),
    )


def _iterations(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (first.isdigit() and (last.isdigit() or not dash)):
        raise ConfigurationError(f"--iteration must be a number or a range such as 10-20; found {text!r}")
    return int(first), int(last or first)


def _advantages(text: str | None) -> tuple[float, float] | None:
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


def recorded_in() -> str:
    """The tracking URI of the project: the one in params.yaml, or else its own database."""
    from flows.recording.record import tracking_uri
    from turnwise.experiment import load
    from turnwise.store.paths import project_root

    return tracking_uri(load(project_root() / "params.yaml"))
