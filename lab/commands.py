"""The commands that write this repository's own pages and base policies; a clone's command line has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import (
    MOST,
    PARAMETERS_FILE,
    ParametersFile,
    Processes,
    RecordFolder,
    Settings,
    WorldNames,
    load_experiment,
)
from turnwise.errors import ConfigurationError

ECHO_TRAP = (Path("experiments/echo-trap.yaml"), Path("experiments/echo-trap-bandit.yaml"))
"""The experiments that are designed to collapse."""


def calibrate(
    overlays: Annotated[
        list[Path] | None,
        typer.Argument(metavar="OVERLAY", help="An experiment each.", show_default="the two of the Echo Trap"),
    ] = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    folder: RecordFolder = None,
) -> None:
    """Find the bounds of the alarms by runs that collapse on purpose."""
    from turnwise.project import project_root

    experiments = [
        load_experiment(parameters, [project_root() / overlay], settings) for overlay in overlays or ECHO_TRAP
    ]
    rules = load_experiment(parameters, None, None).alarms.rules
    from flows.commands.worlds import DOCS
    from lab.calibrate import show_calibration

    defaults = {name: rule for name, rule in rules.items() if rule is not None}
    show_calibration(experiments, defaults, folder or DOCS)


def science(
    page: Annotated[str, typer.Argument(help="A name in experiments/claims.")],
    further: Annotated[list[str] | None, typer.Argument(metavar="ABLATION", help="Further ablations of --run.")] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ABLATION...",
            help="Ablations of the page, or core, or all.",
            show_default="none: the page is drawn from what was run",
        ),
    ] = None,
    processes: Processes = None,
) -> None:
    """Test a paper's claims and write their page in docs/science."""
    from lab.science.claims import known_claims

    known_claims(page)
    if further and not run:
        raise ConfigurationError(
            f"turnwise science takes one page; found {page} {' '.join(further)}: see --run in --help", "TW-command-line"
        )
    ablations = [*(run or []), *(further or [])]
    from lab.science.science_page import write_page

    write_page(page, ablations, processes)


def baselines(
    worlds: WorldNames = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Episodes of each baseline.", show_default="thousands, or hundreds if slow"),
    ] = None,
    folder: RecordFolder = None,
) -> None:
    """Record the success of each world's baseline policies."""
    from flows.commands.worlds import DOCS
    from lab.baselines import record_baselines

    record_baselines(worlds or [], folder or DOCS, episodes)


def pretrain(
    policies: Annotated[
        list[str] | None, typer.Argument(metavar="POLICY", help="Names in the configuration; all if none is named.")
    ] = None,
    configuration: Annotated[
        Path | None,
        typer.Option(help="What they are made of.", show_default="experiments/pretraining/base.yaml"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the policies go.", show_default="turnwise/policy/base, next to the code")
    ] = None,
) -> None:
    """Make the base policies: small ones that can copy and know how the worlds look."""
    from lab.pretraining.configuration import load_pretraining
    from turnwise.project import project_root

    settings = load_pretraining(configuration or project_root() / "experiments" / "pretraining" / "base.yaml")
    from rich.console import Console

    from lab.pretraining.pretrain import pretrain as make_base_policies

    make_base_policies(settings, policies or [], folder, Console())


def results(
    overlays: Annotated[
        list[Path] | None,
        typer.Argument(metavar="OVERLAY", help="Experiments that were run.", show_default="all of experiments/worlds"),
    ] = None,
    folder: RecordFolder = None,
) -> None:
    """Record what small policies have learned in each world."""
    from flows.commands.worlds import DOCS
    from lab.results_page import record_results_page

    record_results_page(overlays or [], folder or DOCS)


COMMANDS: Sequence[Callable[..., None]] = (science, calibrate, baselines, results, pretrain)
