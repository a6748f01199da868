"""A stage that an iteration calls and that is listed: whatever tells of stages tells of it."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from comparison import compared
from project_copy import ROOT
from rich.console import Console

from flows import plan as of_plan
from flows import train as of_train
from flows.commands.plan import show_plan
from flows.plan import plan_ablation
from flows.prepare import prepare_materials, prepare_policy
from flows.runtime.disk import needs_of, planned_run
from flows.runtime.sampler import Sampler
from flows.train import iterate, train
from tasks.caching import depends_on
from tasks.calls import Call, Make, call
from tasks.orchestration.deferred import task
from tasks.restoring import opened
from turnwise.config.schema import Section
from turnwise.data.trajectory_files import read_trajectories
from turnwise.experiment import load
from turnwise.records import sources
from turnwise.records.record import tracking_uri
from turnwise.records.results import all_references
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import find_runs
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.iteration_stages import IterationStage, MachineCost, PlottedMetric
from turnwise.training_runs.state import Iteration, Run
from turnwise.training_runs.work_left import expected_work

answer = partial(sources.answer, opened=opened)

pytestmark = pytest.mark.chain

SMALL: dict[str, Any] = {
    "rollout.prompts": 4,
    "monitors.probe_every": None,
    "variants": {"base": {}},
    "ablation.variants": ["base"],
    "evaluation.every": 9,
}
ITERATIONS = 2


class LengthsParameters(Section):
    """Lengths have no parameters."""


@task(name="lengths", task_run_name="{label}: lengths", retries=1)
@depends_on(platform_bound=False)
def lengths(parameters: LengthsParameters, *, rollout: Reference, label: str = "lengths") -> Reference:
    """The longest reply of a rollout."""
    trajectories = read_trajectories(default_store().folder(rollout))
    with default_store().write("lengths") as draft:
        draft.metrics["longest"] = max(len(turn.reply_tokens) for each in trajectories for turn in each.turns)
    return draft.reference


def measure_lengths(run: Run, iteration: Iteration) -> Call:
    return call(lengths, LengthsParameters, rollout=iteration.rollout, label=run.label(iteration))


ADDED = IterationStage(
    name="lengths",
    task="lengths",
    seconds=3.0,
    groups=("lengths",),
    units={"longest": "tokens"},
    costs=(MachineCost("seconds/lengths", account="lengths"),),
    plotted=(PlottedMetric("Lengths", "longest", "longest reply"),),
)


def test_a_stage_is_added_by_its_call_and_one_entry_of_the_roster(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    overlay = Path(__file__).parent / "tiny.yaml"
    experiment = load(ROOT / "params.yaml", [overlay], {**SMALL, "optimization.iterations": ITERATIONS})
    plan, stages, needs = planned_run(experiment, "base"), plan_ablation(experiment).kinds, needs_of(experiment)

    def with_lengths(run: Run, number: int, make: Make, sampler: Sampler | None = None) -> None:
        iterate(run, number, make, sampler)
        run.iterations[-1].made["lengths"] = make(measure_lengths(run, run.iterations[-1]))

    for module in (of_train, of_plan):
        monkeypatch.setattr(module, "iterate", with_lengths)
    monkeypatch.setattr(iteration_stages, "STAGES", (*iteration_stages.STAGES, ADDED))

    # Before anything is computed: the dry run, the estimate of the time left, the disk that is needed.
    said = io.StringIO()
    show_plan(experiment, Console(file=said, width=200))
    assert "lengths 2" in said.getvalue()
    with_more = replace(plan, stages={**plan.stages, "lengths": ITERATIONS}, calls=plan.calls + ITERATIONS)
    assert planned_run(experiment, "base") == with_more
    more_stages = plan_ablation(experiment).kinds
    assert more_stages - stages == {"lengths": ITERATIONS}
    assert expected_work(more_stages) == pytest.approx(expected_work(stages) + ITERATIONS * ADDED.seconds)
    more = needs_of(experiment)
    assert needs is not None and more is not None and more.records > needs.records

    # It runs, and its metrics are in MLflow under its group, with unit and cost.
    result = compared(experiment, tmp_path / "results")
    (recorded,) = find_runs(tracking_uri(experiment), "base seed 1")
    made = [artifacts["lengths"] for artifacts in recorded.artifacts.iterations]
    assert len(made) == ITERATIONS
    longest = [default_store().metrics(each)["longest"] for each in made]
    assert recorded.metrics["lengths/longest_tokens"] == longest[-1] > 0
    assert recorded.metrics["seconds/lengths"] > 0
    found = answer("lengths/longest_tokens", [recorded], iteration=1)
    assert (found.value, [source.reference for source in found.sources]) == (longest[0], made[:1])

    # It is in the report, in its time account, and among the references that the results' digest is of.
    (curve,) = [curve for curve in result.report.curves if curve.topic == "Lengths"]
    assert curve.points == list(enumerate(longest, start=1))
    assert [name for name, _ in result.report.account()][-2:] == ["lengths", "everything else"]
    assert result.report.work[0].seconds["lengths"] > 0
    prepared = prepare_policy(experiment, prepare_materials(experiment))
    run = train(experiment.variant("base"), prepared, "base", 1)
    assert set(made) <= set(all_references([run]))
