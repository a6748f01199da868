"""The commands on recorded runs. Each imports what it needs only when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.commands.options import MOST, Port, Tracking

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="Id, name or tag of a run or an ablation.", show_default="the latest")
]


def show(
    which: Run = "",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Another run, a baseline policy or `warm start`: print it next to this.",
            show_default=False,
        ),
    ] = None,
    success: Annotated[
        bool | None, typer.Option("--success/--failure", help="Only what was solved, or only what was not.")
    ] = None,
    world: Annotated[str | None, typer.Option(metavar="NAME", help="Of a mixture: one of its worlds.")] = None,
    ending: Annotated[str | None, typer.Option(metavar="NAME", help="success, failure, turn_limit, ...")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="One task over the iterations, an episode of each.")
    ] = None,
    split: Annotated[
        Literal["training", "validation", "test"] | None, typer.Option(help="The task set that was played.")
    ] = None,
    mode: Annotated[
        Literal["greedy", "sampled"] | None, typer.Option(help="In an evaluation: how the policy chose.")
    ] = None,
    iteration: Annotated[str | None, typer.Option(metavar="N or A-B", help="Only these iterations.")] = None,
    advantage: Annotated[
        str | None,
        typer.Option(
            metavar="A..B", help="Only if some turn's advantage lies between, e.g. 0.5.. or ..0 (of training)."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="How many episodes.", show_default="4, or 300 on a page")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page that opens offline instead.")] = None,
    tracking: Tracking = None,
) -> None:
    """Look at the episodes of recorded runs."""
    from flows.commands.show import advantage_range, iteration_range, show_episodes
    from flows.python.experiments import use_project_storage
    from turnwise.reporting.data.episodes import Wanted

    wanted = Wanted(
        success=success,
        world=world,
        ending=ending,
        task=task,
        occasion=split or ("training" if advantage else None),
        mode=mode,
        iterations=iteration_range(iteration),
        advantage=advantage_range(advantage),
    )
    use_project_storage()
    show_episodes(which, wanted, against, limit, html, tracking)


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Id, name or tag of runs or ablations.", show_default="the latest"),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare even runs that were not tested alike.")] = False,
    success: Annotated[float, typer.Option(min=0.0, max=1.0, help="Report when this success was reached.")] = 0.8,
    csv: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write each table as a file, too.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what is printed as a page, too.")] = None,
    tracking: Tracking = None,
) -> None:
    """Compare recorded runs, of whatever ablations, with verdicts."""
    from flows.commands.compare import compare_runs
    from flows.python.experiments import use_project_storage

    use_project_storage()
    compare_runs(runs or [""], anyway, success, csv, html, tracking)


def lineage(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NUMBER-or-ARTIFACT",
            help="ROW/COLUMN or 'ROW - ROW' of the report, a metric of MLflow, or kind/digest.",
            show_default=False,
        ),
    ],
    of: Annotated[str, typer.Option(metavar="RUN", help="Id, name or tag of the run.", show_default="the latest")] = "",
    iteration: Annotated[
        int | None, typer.Option(min=0, max=MOST, metavar="N", help="Of the metric.", show_default="the last")
    ] = None,
    tracking: Tracking = None,
) -> None:
    """Go from a number or an artifact back to everything that it came from."""
    from flows.commands.lineage import show_lineage
    from flows.python.experiments import use_project_storage

    use_project_storage()
    show_lineage(what, of, iteration, tracking)


def export(
    which: Annotated[str, typer.Argument(metavar="RUN", help="Id, name or tag of one run.", show_default=False)],
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="A folder to make, or an empty one.", show_default=False)
    ],
    iteration: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, metavar="N", help="0: the warm start.", show_default="the final policy"),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The iteration with the most success in validation.")] = False,
    tracking: Tracking = None,
) -> None:
    """Write a run's policy for transformers and vLLM, with a model card."""
    from flows.commands.export import export_run
    from flows.python.experiments import use_project_storage

    use_project_storage()
    export_run(which, iteration, best, to, tracking)


def reproduce(
    wanted: Annotated[
        str, typer.Argument(metavar="RUN", help="Id, name or tag of a run or an ablation.", show_default=False)
    ],
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder to make.", show_default="reproductions/<id>, in .turnwise"),
    ] = None,
    tracking: Tracking = None,
) -> None:
    """Run what was recorded again, with its code and parameters, and compare the digests."""
    from flows.commands.reproduce import reproduce_runs
    from flows.python.experiments import use_project_storage

    use_project_storage()
    reproduce_runs(wanted, into, tracking)


def ui(port: Port = 5000) -> None:
    """Serve MLflow's pages on what was run."""
    from turnwise.project import home
    from turnwise.store.sqlite_address import sqlite_address
    from turnwise.tracking import ui_command
    from turnwise.tracking.database import prepare_database
    from turnwise.tracking.finding import newest_view
    from turnwise.tracking.ownership import close_abandoned

    database = sqlite_address(home() / "mlflow.db")
    command = ui_command(database, port)
    prepare_database(database)
    close_abandoned(database)
    address = f"http://127.0.0.1:{port}"
    sys.stdout.write(f"MLflow on {address} (a few seconds to start; Ctrl-C ends it)\n")
    if (view := newest_view(database)) is not None:
        name, place = view
        sys.stdout.write(f"The curves and the table of {name}: {address}/{place}\n")
    sys.stdout.flush()
    os.execvp(command[0], command)
