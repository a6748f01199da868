"""`turnwise lineage` and what it reads: every number that MLflow records leads to the artifact that holds it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from recorded_runs import played, tiny, tracking_uri

from flows.report import open_record
from tasks.prepare.materials import task_set
from tasks.restoring import opened
from turnwise.config.schema import SelectionSection
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.health.alarms import Change
from turnwise.records import sources
from turnwise.records.metrics import metrics_of
from turnwise.records.sources import sources_of
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RecordedRun, RunArtifacts, find_runs
from turnwise.training_runs.state import Iteration, Models, Prepared, Run, changed, task_set_parameters
from turnwise.world import SPLITS

answer = partial(sources.answer, opened=opened)

COSTS = ("seconds/", "speed/", "memory/", "probe/")
"""What clocks say is no part of any artifact."""


def made(kind: str, **metrics: float) -> Reference:
    with default_store().write(kind) as draft:
        draft.metrics.update(metrics)
    return draft.reference


def an_iteration(number: int) -> Iteration:
    """An iteration whose artifacts are a number each."""
    artifacts = {
        "rollout": made("rollout", success=number / 8),
        "credit": made("credit", reward=number / 4),
        "policy": made("policy", skipped=0.0, entropy=number / 2),
        "health": made(
            "health",
            **{"monitor/entropy": number / 2, "monitor/invalid_replies": number / 9},
            **{"alarm/raised": 0.0, "alarm/entropy": 0.0, "horizon/limit": number},
        ),
        "evaluation": made("evaluation", **{"sampled/success": number / 16, "sampled/pass@2": number / 16}),
        "evaluation_at_horizon": made("evaluation", **{"sampled/success": number / 32}),
        "selection": made("selection", kept=number),
        "critic": made("critic", value_loss=number / 4),
    }
    return Iteration(number, Models(made("policy"), made("critic")), None, artifacts)


@pytest.fixture
def run(turnwise_home: Path) -> RecordedRun:
    """Two iterations, as their artifacts are named in MLflow."""
    iterations = [an_iteration(1), an_iteration(2)]
    artifacts = RunArtifacts(
        variant="base",
        seed=1,
        experiment=tiny().model_dump(mode="json"),
        prepared={},
        start=made("evaluation", **{"sampled/success": 0.01}),
        start_at_horizon=made("evaluation", **{"sampled/success": 0.02}),
        iterations=[each.artifacts for each in iterations],
        test=made("evaluation", **{"sampled/success": 0.03}),
        test_at_horizon=made("evaluation", **{"sampled/success": 0.04}),
    )
    return RecordedRun("id", "base seed 1", "ablation", True, {}, {}, artifacts, {})


def test_every_number_that_is_recorded_of_an_iteration_leads_to_the_artifact_that_holds_it(run: RecordedRun) -> None:
    for number in (1, 2):
        iteration = an_iteration(number)
        told = metrics_of(iteration)
        of_artifacts = {name.replace("@", "_at_"): told[name] for name in told if not name.startswith(COSTS)}
        assert len(of_artifacts) == 14
        for name, value in of_artifacts.items():
            (source,) = sources_of(name, [run], number)
            assert source.value == value
            assert source.reference in run.artifacts.iterations[number - 1].values()
            (latest,) = sources_of(name, [run], None)
            assert latest.reference in run.artifacts.iterations[-1].values()


def test_a_number_is_found_with_the_name_of_its_ablation_too(run: RecordedRun) -> None:
    assert answer("ablation/rollout/success", [run]) == answer("rollout/success", [run])


def test_a_cell_that_is_misspelled_is_refused_with_the_one_that_is_meant(run: RecordedRun) -> None:
    with pytest.raises(ConfigurationError, match=r"mean.*'base/success'"):
        answer("base/succes", [run])


def test_the_start_and_the_test_are_no_iterations(run: RecordedRun) -> None:
    for name, iteration, expected in (
        ("validation/sampled/success", 0, 0.01),
        ("validation_at_horizon/sampled/success", 0, 0.02),
        ("test/sampled/success", None, 0.03),
        ("test_at_horizon/sampled/success", None, 0.04),
    ):
        assert [source.value for source in sources_of(name, [run], iteration)] == [expected]


@pytest.mark.parametrize(
    ("what", "iteration"),
    [
        *[("update/speed", None), ("rollout/success", 3), ("rollout/success", 0)],
        *[("base/success", 1), ("base - warm start", 1), ("test/sampled/success", 2), ("base/tokens sampled", 1)],
    ],
)
def test_what_is_no_number_of_the_run_is_refused(run: RecordedRun, what: str, iteration: int | None) -> None:
    looked_in = re.escape(f"none of them in {run.ablation or run.name}")
    with pytest.raises(ConfigurationError, match=rf"(?s){looked_in}.*GROUP/METRIC.*test.*TW-unknown-source"):
        answer(what, [run], iteration)


def test_a_run_that_an_alarm_changed_is_recorded_with_the_parameters_that_it_began_with(turnwise_home: Path) -> None:
    configured: Experiment = tiny()
    task_sets = [task_set.fn(task_set_parameters(configured, split)) for split in SPLITS]
    prepared = Prepared(*task_sets, made("demonstrations"), made("tokenizer"), made("policy"))
    tested = played(configured, dict(zip(SPLITS, task_sets, strict=True)), "test", 0.5, "test")
    after = changed(
        configured, Change(learning_rate=1e-9, selection=SelectionSection(rule="random", options={"share": 0.5}))
    )
    models = Models(prepared.warm_start, None)
    run = Run("base", 1, after, prepared, models, tested, iterations=[an_iteration(1)], test=tested)
    run.test_at_horizon = tested
    record = open_record(configured, prepared)
    record.open(run.name, run.variant, run.seed, configured)
    record.finish(run)
    (found,) = find_runs(tracking_uri(), run.name)
    assert found.artifacts.experiment["optimization"]["learning_rate"] == configured.optimization.learning_rate
    assert found.artifacts.experiment["selection"]["rule"] == configured.selection.rule
    assert found.artifacts.test_at_horizon == tested


def test_every_file_that_a_diff_changes_is_named_also_one_that_it_removes() -> None:
    diff = (
        "diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        'diff --git "a/\\303\\251.py" "b/\\303\\251.py"\n--- "a/\\303\\251.py"\n+++ "b/\\303\\251.py"\n@@ -1 +1 @@\n'
        "-a\n+b\n"
        "diff --git a/b b/c.py b/b b/c.py\n--- a/b b/c.py\n+++ b/b b/c.py\n@@ -1 +1 @@\n-a\n+diff --git a/x b/x\n"
    )
    assert sources.changed_files(diff) == ["gone.py", "\\303\\251.py", "b b/c.py"]
