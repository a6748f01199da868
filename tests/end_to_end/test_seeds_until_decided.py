"""Seeds that are added until comparisons are decided: whoever makes the runs, and whenever, the same results."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from comparison import compared, tiny_experiment
from rich.console import Console

from flows.commands.plan import show_plan
from flows.plan import plan_ablation
from turnwise.experiment import Experiment
from turnwise.project import home
from turnwise.reporting.finding import report_finding
from turnwise.reporting.html.page import page
from turnwise.reporting.terminal.comparison import print_report
from turnwise.training_runs.observing import Observer, observing
from turnwise.training_runs.state import Prepared

pytestmark = [pytest.mark.chain]


def until(budget: dict[str, int] | None = None, **options: float) -> Experiment:
    settings: dict[str, object] = {"ablation.seeds": {"until": "decided", "at_most": 5, **options}}
    return tiny_experiment(settings if budget is None else settings | {"ablation.budget": budget})


class KilledAtSeedFour(Observer):
    """Ends the process, as it were, in the second look."""

    def started(self, stage: str, label: str) -> None:
        if label.startswith("mt-grpo seed 4"):
            raise RuntimeError("killed")


def test_a_killed_race_goes_on_with_the_digests_of_one_that_two_processes_ran_and_a_repeat_computes_nothing(
    fresh: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = until(worth_having=0.0)  # which nothing rules out
    assert len(plan_ablation(experiment).runs) == 10
    with pytest.raises(RuntimeError, match="killed"), observing(KilledAtSeedFour()):
        compared(experiment, tmp_path / "results")
    done = {
        f"{run.variant} seed {run.seed}" for run in plan_ablation(experiment).runs if run.test and run.ended is None
    }
    assert len(done) == 10  # what is not recorded is planned at most

    went_on = compared(experiment, tmp_path / "results")
    assert went_on.report.race is not None
    (pair,) = went_on.report.race.comparisons
    assert went_on.report.race.at_most == 5 and 3 <= pair.seeds <= 5
    plan = plan_ablation(experiment)
    assert plan.recorded == plan.kinds and len(plan.runs) == 2 * pair.seeds
    repeat = compared(experiment, tmp_path / "results")
    assert (repeat.computed, repeat.digest) == (0, went_on.digest)
    assert plan_ablation(experiment).is_recorded

    # The same runs, with a difference worth having that any result rules out: decided at the first look.
    earlier = compared(until({"iterations": 1}, worth_having=2.0), tmp_path / "earlier")
    assert earlier.computed == 1  # the report
    assert earlier.report.race is not None
    assert [(each.decision, each.seeds) for each in earlier.report.race.comparisons] == [("ruled out", 3)]
    assert sum(work.runs for work in earlier.report.work) == 6
    assert earlier.report.costs is not None and earlier.report.costs.at_budget is not None
    at_budget = earlier.report.costs.at_budget.judgement  # of the same looks
    assert at_budget is not None and at_budget.notes[-1].startswith("Seeds were added until comparisons were decided")
    console = Console(file=StringIO(), width=200)
    print_report(earlier.report, console)
    said = "grpo-or − mt-grpo: a difference of 2 is ruled out after 3 of at most 5 seeds."
    assert said in console.file.getvalue() and said in page(earlier.report)
    assert report_finding(earlier.report).endswith("A difference of 2 is ruled out after 3 of at most 5 seeds.")

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home() / 'mlflow.db'}")
    tags = [run.data.tags for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
    assert said in [each.get("turnwise.seeds") for each in tags]

    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "another"))
    assert compared(experiment, tmp_path / "shared", processes=2).digest == went_on.digest


def test_a_dry_run_shows_at_least_and_at_most(fresh: Prepared) -> None:
    console = Console(file=StringIO(), width=200)
    show_plan(until(), console, 3)
    shown = console.file.getvalue()
    assert "for each of 3 to 5 seeds, at most" in shown
    assert "Runs: 6 to 10, shared by 3 processes of this machine." in shown
