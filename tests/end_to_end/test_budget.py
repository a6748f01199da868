"""Variants at a budget that was written down: said in the plan, refused out of reach, and no result changes by it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from comparison import compared, tiny_experiment
from rich.console import Console

from flows.commands.plan import show_plan
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.project import home
from turnwise.reporting.ablation_report import AblationReport
from turnwise.reporting.html.page import page
from turnwise.reporting.terminal.comparison import print_report
from turnwise.training_runs.state import Prepared

pytestmark = [pytest.mark.chain]


def experiment(**budget: float) -> Experiment:
    return tiny_experiment({"ablation.budget": budget} if budget else {})


def test_the_verdicts_at_a_budget_are_on_the_page_in_the_terminal_and_in_mlflow(
    fresh: Prepared, tmp_path: Path
) -> None:
    free = compared(experiment(), tmp_path / "free")
    assert free.report.costs is not None and free.report.costs.at_budget is None
    assert [each.budget for each in free.report.costs.at_equal] == [
        *("iterations", "sampled_tokens", "trained_tokens", "environment_steps", "optimizer_steps", "seconds")
    ]
    least = free.report.costs.at_equal[3].spent
    written = compared(experiment(environment_steps=int(least) - 1), tmp_path / "written")
    assert (written.computed, written.digest) == (0, free.digest)

    console = Console(file=StringIO(), width=200)
    print_report(written.report, console)
    assert isinstance(console.file, StringIO)
    said = f"At {int(least) - 1:,} environment steps: grpo-or − mt-grpo: "
    assert said in console.file.getvalue()
    assert f"<h3>At {int(least) - 1:,} environment steps, the budget" in page(written.report)
    rows = AblationReport(written.report, None).verdicts()
    assert len(rows[rows["measure"] == f"success at {int(least) - 1:,} environment steps"]) == 3
    costs = AblationReport(free.report, None).costs()
    assert set(costs["what"]) == {"grpo-or", "mt-grpo", "grpo-or - mt-grpo"} and len(costs) == 18

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home() / 'mlflow.db'}")
    tags = [run.data.tags for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
    assert any(said in each.get("turnwise.budget", "") for each in tags)

    beyond = compared(experiment(environment_steps=int(least) + 1), tmp_path / "beyond")
    assert beyond.report.costs is not None and beyond.report.costs.at_budget is not None
    assert beyond.report.costs.at_budget.judgement is None
    assert "nothing is said beyond the shortest run" in page(beyond.report)


def test_a_budget_out_of_reach_is_refused_before_anything_is_computed(prefect_server: str) -> None:
    console = Console(file=StringIO(), width=200)
    show_plan(experiment(iterations=1), console)
    assert isinstance(console.file, StringIO)
    assert "Verdicts also at 1 iteration of each run" in console.file.getvalue()
    for refused in (lambda: show_plan(experiment(iterations=9), console), lambda: compared(experiment(iterations=9))):
        with pytest.raises(
            ConfigurationError, match="grpo-or makes at most 2 iterations in 2 iterations; found 9 iter"
        ):
            refused()


def test_a_report_without_a_budget_has_the_parameters_that_it_had() -> None:
    dumped = json.loads(experiment().ablation.model_dump_json())
    assert "budget" not in dumped and "budget" in experiment(iterations=1).ablation.model_dump(mode="json")
