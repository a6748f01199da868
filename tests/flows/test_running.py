"""What commands print of what they have run, and what the Python interface returns of it."""

from __future__ import annotations

from pathlib import Path

from recorded_runs import tiny, tracking_uri

from flows.commands.running import evaluation_line
from flows.python.running import FinishedAblation
from flows.report import AblationResult
from turnwise.results.report_data import ReportColumn, ReportData
from turnwise.store import Reference
from turnwise.tracking import Recorder
from turnwise.tracking.finding import ARTIFACTS_FILE, RunArtifacts


def test_an_evaluation_is_told_sampled_and_greedy_where_replies_can_be_greedy() -> None:
    sampled = {"sampled/success": 0.25, "sampled/turns": 2.5}
    assert (
        evaluation_line("warm start", {**sampled, "greedy/success": 0.5})
        == "warm start    success 0.250  greedy success 0.500  turns 2.50"
    )
    assert evaluation_line("oracle", sampled) == "oracle        success 0.250  greedy success   –    turns 2.50"


def test_the_runs_of_an_ablation_are_its_own_though_another_of_its_name_began_later(turnwise_home: Path) -> None:
    experiment = tiny(f"tracking.uri={tracking_uri()}")
    recorder = Recorder(tracking_uri(), experiment.tracking.experiment, turnwise_home / "mlflow")
    start, name = Reference(kind="evaluation", digest="0" * 32), experiment.ablation.name
    parents = [recorder.parent(name, identity, {}) for identity in ("first", "second")]
    for number, parent in enumerate(parents):
        made = RunArtifacts(variant="grpo-or", seed=number, experiment={}, prepared={}, start=start, iterations=[])
        child = recorder.child(parent, f"grpo-or seed {number}", f"run {number}", {}, {})
        child.log_text(made.model_dump_json(), ARTIFACTS_FILE)
    data = ReportData(name, "", [ReportColumn("success", "success")], [])
    result = AblationResult(turnwise_home, "digest", 0, 1, [], data, "", parents[0].id)
    assert [run.name for run in FinishedAblation(experiment, result)] == ["grpo-or seed 0"]
