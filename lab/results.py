"""`turnwise results`: what the small policies of `experiments/worlds` learned, from their results, as one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from flows.recording.results import DIGESTS_FILE
from lab.results_page import (
    PAGE_FILE,
    RECORD_FILE,
    REMARKS_FILE,
    LearningResult,
    learning_results,
    page,
    read_record,
    record_text,
)
from turnwise.config.overlays import read_yaml
from turnwise.reporting.data.report_data import ReportData
from turnwise.reporting.data.tables import DATA_FILE
from turnwise.store.atomic_write import write_whole
from turnwise.store.paths import project_root


def record_results_page(overlays: Sequence[Path], folder: Path) -> None:
    """Update the record and the page in a folder from the results of these overlays.

    Without overlays, from all of `experiments/worlds`. Experiments without results here keep their recorded lines.
    """
    console = Console(highlight=False, soft_wrap=True)
    record = folder / RECORD_FILE
    found = read_record(record.read_text(encoding="utf-8")) if record.is_file() else []
    every = sorted((project_root() / "experiments" / "worlds").glob("*.yaml"))
    for overlay in overlays or every:
        own = _of_results(overlay)
        if not own:
            console.print(f"{overlay.stem}: left as it was; no results here: turnwise ablation {overlay}")
        else:
            found = [*(line for line in found if line.experiment != overlay.stem), *own]
    found.sort(key=lambda line: line.experiment)
    recorded = {line.experiment for line in found}
    missing = [overlay.stem for overlay in every if overlay.stem not in recorded]
    write_whole(record, record_text(found))
    remarks = folder / REMARKS_FILE
    write_whole(folder / PAGE_FILE, page(found, missing, read_yaml(remarks) if remarks.is_file() else {}))


def _of_results(overlay: Path) -> list[LearningResult]:
    results = project_root() / "results" / read_yaml(overlay)["ablation"]["name"]
    if not (results / DATA_FILE).is_file():
        return []
    report = ReportData.from_json((results / DATA_FILE).read_text(encoding="utf-8"))
    return learning_results(
        overlay.stem, report, json.loads((results / DIGESTS_FILE).read_text(encoding="utf-8"))["all"]
    )
