"""The commands on the home, which holds everything computed. Each imports what it needs only when it runs.

turnwise verify                                     whether everything is as it was written, and what mends the rest
turnwise prune --dry-run                            what would be removed, and how much that is
turnwise prune -s storage.keep_evaluated=false      with other settings than those of params.yaml
turnwise restore policy/4be1f02a                    the weights of a policy whose digest begins so
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.commands.options import PARAMETERS_FILE, Overlays, ParametersFile, Settings, load_experiment
from flows.commands.progress_line import showing_progress
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.policy.model_files import MODEL_FILES
from turnwise.project import home

if TYPE_CHECKING:
    from turnwise.store.inspection import Inspected
    from turnwise.store.retention import Removal

LISTED = 20
"""Number of damaged things per part that are listed; further ones are only counted."""


def verify() -> None:
    """Check that everything in the home is intact; say what is not, and how to repair it."""
    # It reads every byte of the store and of the shared one (`storage.url`), whatever the store's index says, every
    # record of Prefect's, and has SQLite check both databases. It changes nothing and may run beside anything else.
    from turnwise.records.record import use_project_storage

    use_project_storage()
    console = Console(highlight=False)
    with showing_progress():
        parts = inspect(home())
    print_parts(parts, console)
    if number := sum(len(part.damaged) for part in parts):
        raise TurnwiseError(
            f"everything in {home()} must be as it was written; {number} damaged, as listed above with what mends it",
            "TW-damaged-artifact",
        )


def inspect(folder: Path) -> list[Inspected]:
    """Inspect every part of a home."""
    from turnwise.store import default_store
    from turnwise.store.inspection import inspect_artifacts, inspect_database, inspect_notes, inspect_place
    from turnwise.store.stage_records import inspect_records

    store = default_store()
    return [
        inspect_artifacts(store),
        *([inspect_place(store.place)] if store.place is not None else []),
        inspect_notes(store),
        inspect_records(store),
        inspect_database(
            "Prefect's database",
            folder / "prefect" / "prefect.db",
            f"when nothing runs: rm -r {folder / 'prefect'} (the list of past flow runs goes with it, no result does)",
        ),
        inspect_database(
            "MLflow's database",
            folder / "mlflow.db",
            f"mv {folder / 'mlflow.db'} elsewhere and run the experiments again: what is cached is only recorded again",
        ),
    ]


def print_parts(parts: Sequence[Inspected], console: Console) -> None:
    """Print a table of all parts, and below it what is damaged and how to repair it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("part")
    for heading in ("checked", "damaged", "left over"):
        table.add_column(heading, justify="right")
    for part in parts:
        numbers = [len(part.damaged), len(part.left_over)]
        table.add_row(part.part, str(part.checked), *(str(number) if number else "-" for number in numbers))
    console.print(table)
    for part in parts:
        if part.damaged:
            console.print(Text(f"\n{part.part}: {part.mended_by}", style="bold"))
            for sentence in part.damaged[:LISTED]:
                console.print(Text(f"* {sentence}"), soft_wrap=True)
            if (more := len(part.damaged) - LISTED) > 0:
                console.print(f"* and {more} more")
    if leftovers := [path for part in parts for path in part.left_over]:
        folders = ", ".join(dict.fromkeys(path.rpartition("/")[0] for path in leftovers[:LISTED]))
        console.print(Text(f"\nLeft over, harmless: {len(leftovers)} in {folders}"), soft_wrap=True)


def prune(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Remove what the section storage does not keep; it can be recomputed."""
    storage = load_experiment(parameters, overlays, settings, to_plan=True).storage
    from turnwise.data.trajectory_files import success_of
    from turnwise.reporting.formatting import readable_bytes
    from turnwise.store import default_store
    from turnwise.store.retention import removals
    from turnwise.training_runs.iteration_stages import replaced_inputs

    console, store = Console(highlight=False), default_store()
    before = _sizes(home())
    with console.status("reading the lineage"):
        planned_removals = removals(store, storage, success_of, replaced_inputs())
    removed = sum(store.prune(each.reference, each.files) for each in planned_removals) if not dry_run else 0
    _print_pruned(console, before, planned_removals)
    planned = sum(each.bytes for each in planned_removals)
    if dry_run:
        console.print(f"\nNothing was removed: {readable_bytes(planned)} would be.")
    else:
        console.print(f"\n{readable_bytes(removed)} removed.")
        if removed < planned:
            console.print(f"{readable_bytes(planned - removed)} are being read by a run and stay: prune again later.")


def _print_pruned(console: Console, before: dict[str, int], planned_removals: Sequence[Removal]) -> None:
    """Print the size of each part of the home, and how much of it is pruned."""
    from turnwise.reporting.formatting import readable_bytes
    from turnwise.reporting.terminal.tables import plain_table

    table = plain_table(gap=2)
    for heading in ("part of the home", "holds", "pruned", "of artifacts"):
        table.add_column(heading, justify="left" if heading.startswith("part") else "right", no_wrap=True)
    for part, size in sorted(before.items(), key=lambda each: -each[1]):
        part_removals = [each for each in planned_removals if part == f"store/{each.reference.kind}"]
        pruned = readable_bytes(sum(each.bytes for each in part_removals)) if part_removals else "–"
        table.add_row(part, readable_bytes(size), pruned, str(len(part_removals)) if part_removals else "–")
    table.add_section()
    planned = sum(each.bytes for each in planned_removals)
    table.add_row("all", readable_bytes(sum(before.values())), readable_bytes(planned), str(len(planned_removals)))
    console.print(table)


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of every part of a home; the store is split by kind of artifact."""
    from turnwise.store.files import sizes_below

    sizes: dict[str, int] = {}
    for name, size in sizes_below(folder):
        parts = name.split("/")
        part = "/".join(parts[: 2 if parts[0] == "store" else 1])
        sizes[part] = sizes.get(part, 0) + size
    return sizes


def restore(
    artifact: Annotated[str, typer.Argument(metavar="KIND/DIGEST", help="Or the beginning of a digest.")],
    everything: Annotated[bool, typer.Option("--everything", help="Of a policy: the optimizer's state, too.")] = False,
) -> None:
    """Recompute the pruned files of an artifact."""
    from tasks.restoring import opened
    from turnwise.records.record import use_project_storage
    from turnwise.store import default_store
    from turnwise.store.artifacts import EVERYTHING
    from turnwise.store.provenance import matching_artifacts

    use_project_storage()
    matches = matching_artifacts(default_store(), artifact)
    if len(matches) != 1:
        raise ConfigurationError(
            f"a digest must name one artifact of {home()}; {artifact} names "
            f"{', '.join(map(str, matches)) or 'none'}: say kind/digest, or more of the digest",
            "TW-ambiguous-digest",
        )
    weights = matches[0].kind == "policy" and not everything
    folder = opened(matches[0], MODEL_FILES if weights else EVERYTHING)
    Console(highlight=False, soft_wrap=True).print(str(folder))
