"""`turnwise results`: the page on what the small policies of `experiments/worlds` learn, as Markdown.

It shows baseline policies, warm start and trained policy of every world.

The record is a JSON file with one line for each world and variant that was run, taken from an ablation's report data.
The page is a function of the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from turnwise.checking.baselines import json_lines
from turnwise.config.overlays import read_yaml
from turnwise.project import project_root
from turnwise.records.results import DIGESTS_FILE
from turnwise.reporting.data.tables import DATA_FILE
from turnwise.reporting.formatting import UNDEFINED
from turnwise.reporting.markdown import render
from turnwise.results.report_data import ReportData, Row
from turnwise.statistics import Interval
from turnwise.store.atomic_write import write_whole

RECORD_FILE, PAGE_FILE, REMARKS_FILE = "worlds-learning.json", "worlds-learning.md", "worlds-learning-remarks.yaml"


@dataclass(frozen=True)
class LearningResult:
    """The result of one variant in one world."""

    experiment: str
    """The name of the configuration overlay, which is the world's name if the world has only one overlay."""
    variant: str
    measure: str
    """The metric of all scores: the heading of the first column of the world's table."""
    random: Interval | None
    warm_start: Interval | None
    """Over sampled episodes of the policy from which reinforcement began, which may be a base policy."""
    trained: Interval | None
    """Over sampled episodes."""
    oracle: Interval | None
    """None if the world has no oracle."""
    iterations: int
    digest: str
    """Digest of everything that the ablation computed."""
    greedy_warm_start: Interval | None = None
    """None in records from before greedy play was recorded, as the next."""
    greedy_trained: Interval | None = None

    @property
    def verdict(self) -> str:
        """Of greedy episodes: `higher` or `lower` if the trained mean lies outside the warm start's interval.

        Else `no difference seen`: reinforcement may still have made sampled replies less noisy.
        Without an interval the values themselves are compared; `UNDEFINED` if one of them is missing.
        """
        if self.greedy_warm_start is None or self.greedy_trained is None:
            return UNDEFINED
        start, end = self.greedy_warm_start, self.greedy_trained.value
        if start.low is not None and start.high is not None and start.low <= end <= start.high:
            return "no difference seen"
        return "higher" if end > start.value else "lower" if end < start.value else "no difference seen"


def record_results_page(overlays: Sequence[Path], folder: Path) -> None:
    """Update the record and the page in a folder from the results of these overlays.

    Without overlays, from all of `experiments/worlds`. Experiments without results here keep their recorded lines.
    """
    console = Console(highlight=False, soft_wrap=True)
    record = folder / RECORD_FILE
    lines = read_record(record.read_text(encoding="utf-8")) if record.is_file() else []
    every = sorted((project_root() / "experiments" / "worlds").glob("*.yaml"))
    for overlay in overlays or every:
        own_lines = _read_results(overlay)
        if not own_lines:
            console.print(f"{overlay.stem}: left as it was; no results here: turnwise ablation {overlay}")
        else:
            lines = [*(line for line in lines if line.experiment != overlay.stem), *own_lines]
    lines.sort(key=lambda line: line.experiment)
    experiments = {line.experiment for line in lines}
    missing = [overlay.stem for overlay in every if overlay.stem not in experiments]
    write_whole(record, json_lines(lines))
    remarks = folder / REMARKS_FILE
    write_whole(folder / PAGE_FILE, page(lines, missing, read_yaml(remarks) if remarks.is_file() else {}))


def _read_results(overlay: Path) -> list[LearningResult]:
    results = project_root() / "results" / read_yaml(overlay)["ablation"]["name"]
    if not (results / DATA_FILE).is_file():
        return []
    report = ReportData.from_json((results / DATA_FILE).read_text(encoding="utf-8"))
    return learning_results(
        overlay.stem, report, json.loads((results / DIGESTS_FILE).read_text(encoding="utf-8"))["all"]
    )


def learning_results(experiment: str, report: ReportData, digest: str) -> list[LearningResult]:
    """The record's lines of one ablation, one per variant. `digest` is that of everything that it computed.

    A report's first column is the primary metric over sampled episodes, its last the same over greedy ones.
    """
    sampled_key, greedy_key = report.columns[0].key, report.columns[-1].key
    rows = {row.name: row for row in report.rows if row.kind != "variant"}

    def cell(row: Row | None, key: str = sampled_key) -> Interval | None:
        return None if row is None else row.cells.get(key)

    return [
        LearningResult(
            experiment,
            row.name,
            report.columns[0].heading,
            cell(rows.get("random")),
            cell(rows.get("warm start")),
            cell(row),
            cell(rows.get("oracle")),
            max(
                (point for curve in report.curves if curve.variant == row.name for point, _ in curve.points), default=0
            ),
            digest,
            cell(rows.get("warm start"), greedy_key),
            cell(row, greedy_key),
        )
        for row in report.rows
        if row.kind == "variant"
    ]


def read_record(text: str) -> list[LearningResult]:
    """The record that `json_lines` wrote. Raises pydantic's ValidationError for other text."""
    return TypeAdapter(list[LearningResult]).validate_json(text)


def page(lines: Sequence[LearningResult], missing: Sequence[str] = (), remarks: Mapping[str, str] | None = None) -> str:
    """The whole page as Markdown. `missing`: experiments without a recorded result.

    `remarks` say of an experiment what was tried, and what stands in the way where nothing was learned.
    """
    digests = dict.fromkeys((line.experiment, line.digest) for line in lines)
    return render(
        "lab", "worlds-learning.md.jinja", lines=lines, missing=missing, remarks=remarks or {}, digests=list(digests)
    )
