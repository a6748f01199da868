"""The commands on the home, which holds everything computed. Each imports what it needs only when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.options import PARAMETERS_FILE, Overlays, ParametersFile, Settings, load_experiment


def verify() -> None:
    """Check that everything in the home is intact; say what is not, and how to repair it."""
    from flows.commands.verify import show_verification
    from flows.recording.record import use_project_storage

    use_project_storage()
    show_verification()


def prune(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Remove what the section storage does not keep; it can be recomputed."""
    from flows.commands.prune import show_pruning

    show_pruning(load_experiment(parameters, overlays, settings, to_plan=True).storage, dry_run)


def restore(
    artifact: Annotated[
        str, typer.Argument(metavar="KIND/DIGEST", help="Or the beginning of a digest.", show_default=False)
    ],
    everything: Annotated[bool, typer.Option("--everything", help="Of a policy: the optimizer's state, too.")] = False,
) -> None:
    """Recompute the pruned files of an artifact."""
    from flows.commands.prune import show_restored
    from flows.recording.record import use_project_storage

    use_project_storage()
    show_restored(artifact, everything)
