"""An ablation in the test's own process, which has all that it needs in memory: what `turnwise ablation` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from project_copy import ROOT, TINY
from rich.console import Console

from flows import ablation
from flows import report as reports
from turnwise.experiment import Experiment, load
from turnwise.own_process import collect_rarely
from turnwise.reporting.html import report_files

collect_rarely()  # also in the processes of their own that tests start


@dataclass(frozen=True)
class Computed:
    """The tiny ablation as one process computed it."""

    home: Path
    results: Path
    digest: str


def tiny_experiment(settings: Iterable[str] | Mapping[str, Any] = ()) -> Experiment:
    """The experiment of tiny.yaml with these settings."""
    return load(ROOT / "params.yaml", [TINY], settings)


def compared(
    experiment: Experiment,
    results: Path | None = None,
    processes: int | None = None,
    console: Console | None = None,
    *,
    drawn: bool = False,
) -> reports.AblationResult:
    """The comparison of an ablation's variants.

    Args:
        experiment: the ablation.
        results: where its files go, by default where a user's do.
        processes: how many run the variants.
        console: where it says what it does.
        drawn: whether page and figures are drawn, too, which takes longer than a tiny ablation itself.
    """
    with pytest.MonkeyPatch.context() as patch:
        if results is not None:
            patch.setattr(reports, "results_folder", lambda _: results)
        if not drawn:
            patch.setattr(report_files, "_draw_files", lambda _: {report_files.PAGE_FILE: b"This page was not drawn."})
        if console is not None:
            patch.setattr(ablation, "Console", lambda **_: console)
        return ablation.comparison(experiment, processes, quiet=True)
