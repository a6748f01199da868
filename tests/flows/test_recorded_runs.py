"""Recorded runs of several ablations as tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.python import recorded
from flows.python.recorded import RecordedRuns
from turnwise.reporting.data.episodes import Wanted
from turnwise.store import Reference
from turnwise.tracking.finding import RecordedRun, RunArtifacts


def evaluation(digit: str) -> Reference:
    return Reference(kind="evaluation", digest=digit * 32)


def run(ablation: str, seed: int, baselines: dict[str, Reference]) -> RecordedRun:
    start = evaluation("0")
    artifacts = RunArtifacts(variant="grpo", seed=seed, experiment={}, prepared={}, start=start, iterations=[])
    name = f"grpo seed {seed}"
    return RecordedRun(f"{ablation}-{seed}", name, ablation, True, {}, {}, artifacts, baselines)


def played(run: RecordedRun, wanted: Wanted) -> list[Any]:
    return [SimpleNamespace(policy=name, sample=each.digest[0]) for name, each in run.baselines.items()]


def test_the_baselines_of_every_ablation_are_shown_and_those_that_runs_share_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = ({"random": evaluation(digit), "oracle": evaluation("9")} for digit in "12")
    monkeypatch.setattr(recorded, "evaluation_metrics", lambda split, reference, horizon: {"of": reference.digest[0]})
    monkeypatch.setattr(recorded, "baseline_episodes", played)
    monkeypatch.setattr(recorded, "in_training", lambda *arguments: [])
    monkeypatch.setattr(recorded, "on_task_sets", lambda *arguments: [])
    runs = RecordedRuns([run("first", 1, one), run("first", 2, one), run("second", 1, other)], "sqlite:///none")
    shown = [(row.run, row.of) for row in runs.results().itertuples()]
    assert shown == [("random", "1"), ("oracle", "9"), ("random", "2")]
    episodes = runs._episodes("test", None, None, baselines=True)
    assert [(named["run"], episode.sample) for named, episode in episodes] == shown
