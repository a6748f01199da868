"""`turnwise science`: run the ablations of a page of `docs/science/`, keep their record, and write the page.

A recorded ablation is not run again unless it is named. Even then cached stages are not recomputed, and an interrupted
ablation is resumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from flows.python.running import ablation as run_ablation
from flows.runtime.server import keep_finished_runs
from lab.science.claim_verdicts import decide
from lab.science.claims import ClaimsPage, PlannedAblation, known_claims
from lab.science.science_page import Record, figures, page
from lab.science.tuning import MEASURE
from turnwise.data.outcomes import LeftOut
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.project import project_root
from turnwise.results.report_data import ReportData
from turnwise.store.atomic_write import write_whole
from turnwise.store.default import use_storage
from turnwise.training_runs.state import require_none

PAGES = Path("docs/science")


def write_page(name: str, run: Sequence[str], processes: int | None = None) -> None:
    """Run the named ablations of a page (`core`: all of its core) and write it from all that are recorded.

    `processes` processes share the runs of an ablation.

    Raises:
        ConfigurationError: an unknown page or ablation.
        TrainingEnded: a fault has left out runs of an ablation; the page, which says so, is written.
    """
    claims = known_claims(name)
    left_out: list[LeftOut] = []
    folder = project_root() / PAGES
    for ablation in _selected(name, claims, run):
        experiment = experiment_of(claims.ablations[ablation])
        keep_finished_runs(experiment.storage.keep_finished_days)
        use_storage(experiment.storage.url, experiment.storage.cache_gigabytes)
        result = run_ablation(experiment, processes=processes).result
        left_out += result.left_out
        costs = result.report.costs
        budgets = () if costs is None else tuple(costs.at_equal)
        record = Record(result.digest, _without_samples(result.report, claims), budgets)
        write_whole(_record_path(folder, ablation), _RECORDS.dump_json(record).decode() + "\n")
    draw_page(name, claims, folder)
    console = Console()
    for decision in decide(claims, {ablation: record.report for ablation, record in records(claims, folder).items()}):
        console.print(f"{decision.verdict:<26}{decision.claim.claim}", highlight=False)
    console.print(f"page  {folder / name}.md", highlight=False, soft_wrap=True)
    require_none(left_out)


def draw_page(name: str, claims: ClaimsPage, folder: Path) -> None:
    """Write the page and its figures from the records in a folder."""
    recorded = records(claims, folder)
    for figure in figures(name, claims, recorded):
        write_whole(folder / f"{figure.name}.png", figure.png())
    write_whole(folder / f"{name}.md", page(name, claims, recorded))


def records(claims: ClaimsPage, folder: Path) -> dict[str, Record]:
    """The records of a page's ablations, in the page's order; ablations without a record are left out."""
    paths = {ablation: _record_path(folder, ablation) for ablation in claims.ablations}
    return {
        ablation: _RECORDS.validate_json(path.read_text(encoding="utf-8"))
        for ablation, path in paths.items()
        if path.is_file()
    }


def experiment_of(planned: PlannedAblation) -> Experiment:
    """The configuration of a planned ablation."""
    root = project_root()
    return load(root / "params.yaml", [root / overlay for overlay in planned.overlays])


def _selected(name: str, claims: ClaimsPage, run: Sequence[str]) -> list[str]:
    selected = [
        ablation
        for ablation, planned in claims.ablations.items()
        if ablation in run or (planned.core and "core" in run) or "all" in run
    ]
    for each in run:
        if each not in ("core", "all", *claims.ablations):
            raise ConfigurationError(
                f"the page {name!r} has the ablations {', '.join(claims.ablations)}, or core, or all; found {each!r}",
                "TW-unknown-ablation",
            )
    for ablation in selected:
        own_name = experiment_of(claims.ablations[ablation]).ablation.name
        if own_name != ablation:
            raise ConfigurationError(
                f"an ablation must have the name {ablation!r} that the page {name!r} gives it; its parameters "
                f"say {own_name!r}",
                "TW-ablation-name",
            )
    return selected


def _without_samples(report: ReportData, claims: ClaimsPage) -> ReportData:
    """The part of the report data that a page may need: only curves that it shows or tests, and no trajectories.

    Costs are a part of the record itself.
    """
    measures = [measure for claim in claims.claims for each in claim.relations for measure in each.measures]
    metrics = {*claims.curves, *measures, MEASURE}
    curves = [curve for curve in report.curves if curve.metric in metrics]
    return dataclasses.replace(report, samples=[], curves=curves, costs=None)


def _record_path(folder: Path, ablation: str) -> Path:
    return folder / "data" / f"{ablation}.json"


_RECORDS = TypeAdapter(Record)
