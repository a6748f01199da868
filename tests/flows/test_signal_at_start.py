"""What is said and recorded of a run whose policy earns no differences before it is trained."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from recorded_runs import played, tiny
from rich.console import Console

from flows.commands import plan
from flows.commands.plan import show_plan
from flows.health import judge_start
from flows.report import open_record
from tasks.prepare.materials import task_set
from turnwise.experiment import Experiment
from turnwise.health.initial_signal import InitialSignal
from turnwise.records.results import start_notes
from turnwise.statistics.group_spread import SpreadShare
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import Models, Prepared, Run, task_set_parameters
from turnwise.world import SPLITS


def made(kind: str) -> Reference:
    with default_store().write(kind) as draft:
        (draft.folder / "content.txt").write_text(kind)
    return draft.reference


def without_rewards(experiment: Experiment) -> Experiment:
    """The experiment in which no reward counts, so that no episode earns more than another."""
    rewards = {name: each.model_copy(update={"weight": 0.0}) for name, each in experiment.rewards.items()}
    return experiment.model_copy(update={"rewards": rewards})


@pytest.fixture
def prepared(turnwise_home: Path) -> Prepared:
    train, validation, test = (task_set.fn(task_set_parameters(tiny(), split)) for split in SPLITS)
    return Prepared(train, validation, test, made("demonstrations"), made("tokenizer"), made("policy"))


def begun(prepared: Prepared, experiment: Experiment, variant: str, seed: int) -> Run:
    """A run before its first iteration, from a policy that plays as the oracle half of the time."""
    task_sets = {split: prepared.task_set(split) for split in SPLITS}
    start = played(tiny(), task_sets, "validation", 0.5, "start")
    return Run(variant, seed, experiment, prepared, Models(prepared.warm_start, None), start)


def test_a_start_without_signal_is_logged_once_for_a_variant_recorded_for_each_run_and_noted_in_the_report(
    prepared: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    hopeless = without_rewards(tiny())
    first, *_ = hopeless.ablation.seeds
    runs = [begun(prepared, hopeless, variant, seed) for variant in ("a", "b") for seed in (first, first + 1)]
    with caplog.at_level(logging.WARNING):
        for run in runs:
            judge_start(run)
    assert [record.getMessage().split(": ")[:2] for record in caplog.records] == [
        [f"before iteration 1 of {variant}", "reinforcement has nothing to begin with"] for variant in ("a", "b")
    ]
    (note,) = start_notes(runs)
    assert note.startswith("Before iteration 1 of a, b: reinforcement has nothing") and "warm_start" in note

    record = open_record(hopeless, prepared)
    record.open(runs[1].name, runs[1].variant, runs[1].seed, hopeless)
    record.start(runs[1])
    child = record.tracked.children[runs[1].name]
    tags = child._client.run(child.id).data.tags
    assert tags["turnwise.start"] == runs[1].start_warning


def test_of_a_start_with_signal_nothing_is_said(prepared: Prepared, caplog: pytest.LogCaptureFixture) -> None:
    run = begun(prepared, tiny(), "a", tiny().ablation.seeds[0])
    with caplog.at_level(logging.WARNING):
        judge_start(run)
    assert run.start_warning == "" and not caplog.records and start_notes([run]) == []


def test_the_plan_warns_of_the_variants_whose_start_has_no_signal(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, none = (
        InitialSignal(0.25, 16, 64, SpreadShare(least, most), group_size=8, groups=4, grouped=True)
        for least, most in ((0.5, 0.75), (0.0, 0.0))
    )
    monkeypatch.setattr(plan, "recorded_signals", lambda plan: {some: ["a"], none: ["b", "c"]})
    said = io.StringIO()
    show_plan(tiny(), Console(file=said, width=500))
    seen = "sampled success 0.25 in 64 episodes of 16 tasks; rewards differ within"
    told, warned = [line for line in said.getvalue().splitlines() if line.startswith("start ")]
    assert told == f"start       the warm start of a: {seen} 50% to 75% of groups of 8, 2.0 to 3.0 of 4 an iteration"
    begins = "start       warning, the warm start of b, c: reinforcement has nothing to begin with: "
    assert warned.startswith(f"{begins}{seen} no group. What may help: a longer warm start")


def test_the_plan_says_that_a_start_is_measured_before_training_where_nothing_is_stored(turnwise_home: Path) -> None:
    said = io.StringIO()
    show_plan(tiny(), Console(file=said, width=200))
    assert (
        "\nstart       not known yet: the warm start is evaluated on the validation tasks before training begins"
        in (said.getvalue())
    )
