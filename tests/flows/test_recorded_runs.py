"""Recorded runs of several ablations as tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.python import recorded
from flows.python.outside_agents import _reference
from flows.python.recorded import RecordedRuns
from turnwise.errors import ConfigurationError
from turnwise.exports.policy import policy_of
from turnwise.reporting.data.episodes import Wanted
from turnwise.store import Reference, default_store
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


def test_a_policy_of_an_iteration_that_was_not_made_is_refused() -> None:
    artifacts = run("first", 1, {}).artifacts
    for iteration in (-1, 1):
        with pytest.raises(ConfigurationError, match=rf"0 to 0; found {iteration} .*TW-unknown-iteration"):
            policy_of(artifacts, iteration)


def test_an_artifact_to_learn_from_is_named_by_its_digest_or_the_beginning(turnwise_home: Path) -> None:
    with default_store().write("rollout") as draft:
        (draft.folder / "turns").write_text("none")
    written = draft.reference
    assert _reference(str(written)) == _reference(str(written)[:16]) == _reference(written) == written
    for name in ("rollout/no-digest", f"policy/{written.digest}", written.digest):
        with pytest.raises(ConfigurationError, match="TW-ambiguous-digest"):
            _reference(name)
