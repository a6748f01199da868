"""What an ablation leaves on Prefect's pages: progress, its table, and a link to its report."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from prefect import flow
from rich.console import Console

from flows.runtime.flow_artifacts import FlowProgress, artifact_key, publish_results, results_markdown
from turnwise.results.report_data import ReportColumn, ReportData, Row
from turnwise.statistics import Interval
from turnwise.store import Reference
from turnwise.training_runs.display import Display
from turnwise.training_runs.observing import StageCall

REPORT = ReportData(
    "Credit of 2",
    "",
    [ReportColumn("success", "success"), ReportColumn("turns", "turns", digits=1)],
    [
        Row("mt-grpo", "variant", {"success": Interval(0.5, 0.4, 0.6, "seeds", 3), "turns": None}),
        Row("a|b", "baseline", {"success": Interval(0.25, None, None, "seeds", 1)}),
    ],
)
CALL = StageCall("update", "mt-grpo seed 1", Reference(kind="policy", digest="a" * 32), False, 1.0, "task/digest")


def test_the_table_is_markdown() -> None:
    text = results_markdown(REPORT, Path("results/credit/report.html"), "sqlite:///mlflow.db")
    assert text.splitlines() == [
        "# Credit of 2",
        "",
        "|  | success | turns |",
        "| --- | --- | --- |",
        "| mt-grpo | 0.50 (0.40 to 0.60) | – |",
        r"| a\|b | 0.25 | – |",
        "",
        "Report: `results/credit/report.html`. Runs in MLflow: `turnwise ui`.",
    ]
    with_password = results_markdown(REPORT, Path("r.html"), "https://turnwise:secret@tracking:5000/mlflow")
    assert "MLflow: https://tracking:5000/mlflow." in with_password
    assert "MLflow: http://tracking:5000." in results_markdown(REPORT, Path("r.html"), "http://tracking:5000")


@pytest.mark.usefixtures("prefect_server", "turnwise_home")
def test_a_flow_run_has_progress_table_and_link(tmp_path: Path) -> None:
    from prefect.artifacts import Artifact

    seen: list[float] = []

    @flow(name="comparison")
    def comparison() -> None:
        told = FlowProgress(REPORT.title)
        display = Display(Console(quiet=True), {"update": 4}, 2, told.reached)
        worker = Thread(target=lambda: display.worker("worker 2").finished(CALL))  # as one that follows a worker does
        worker.start()
        worker.join()
        seen.append(Artifact.get(artifact_key("progress", REPORT.title)).data)
        publish_results(REPORT, tmp_path / "report.html", "sqlite:///mlflow.db")
        told.complete()

    comparison()
    assert seen == [25.0], "what a worker has finished counts, and belongs to the flow run"
    found = {name: Artifact.get(artifact_key(name, REPORT.title)) for name in ("progress", "results", "report")}
    assert {name: each and each.type for name, each in found.items()} == {
        "progress": "progress",
        "results": "markdown",
        "report": "markdown",
    }
    assert found["progress"].data == 100.0
    assert "| mt-grpo | 0.50 (0.40 to 0.60) | – |" in found["results"].data
    assert f"[report.html](file://{tmp_path}/report.html)" in found["report"].data


def test_outside_of_a_flow_run_nothing_is_written(tmp_path: Path) -> None:
    told = FlowProgress(REPORT.title)
    told.reached(0.5)
    told.complete()
    publish_results(REPORT, tmp_path / "report.html", "sqlite:///mlflow.db")
