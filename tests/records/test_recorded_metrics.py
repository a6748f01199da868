"""What MLflow records of an iteration: each number once, where it belongs, with its unit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.config.schema import BESIDE_RESULTS
from turnwise.experiment import load
from turnwise.records.metrics import evaluation_metrics, metrics_of, summary_metrics
from turnwise.records.record import AblationRecord
from turnwise.results.report_data import ReportColumn, ReportData, Row
from turnwise.statistics import Interval
from turnwise.store import Reference, default_store
from turnwise.tracking import Recorder
from turnwise.tracking.ablations import SAME, differing_first
from turnwise.training_runs.state import Iteration, Models

ROOT = Path(__file__).parents[2]


def made(kind: str, clock: dict[str, float] | None = None, **metrics: float) -> Reference:
    with default_store().write(kind) as draft:
        draft.metrics.update(metrics)
    default_store().record_clock(draft.reference, clock or {})
    return draft.reference


@pytest.fixture
def iteration(turnwise_home: Path) -> Iteration:
    artifacts = {
        "rollout": made("rollout", {"sampling_seconds": 2.0, "sampled_tokens": 500.0}, success=0.5, turns=2.0),
        "credit": made("credit", {"seconds": 0.1}, reward=0.7),
        "policy": made("policy", {"seconds": 3.0}, skipped=0.0, entropy=0.25, gradient_norm=1.5, value_loss=0.1),
        "health": made(
            "health",
            **{"horizon/limit": 4.0, "monitor/success": 0.5, "monitor/gradient_norm": 1.5},
            **{"monitor/invalid_replies": 0.1, "alarm/raised": 0.0},
        ),
    }
    return Iteration(1, Models(made("policy", warm_start_steps=400.0), None), None, artifacts)


def test_a_run_is_recorded_with_the_rewards_of_its_own_variant(
    iteration: Iteration, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = {"variants.doubled": {"rewards": {"format": {"weight": 2.0}}}}
    experiment = load(ROOT / "params.yaml", settings=doubled | {"tracking.traces": 0})
    recorded: list[float] = []
    child: Any = SimpleNamespace(log_trajectories=lambda *shown: recorded.append(shown[-1]["format"]))
    run: Any = SimpleNamespace(experiment=experiment.variant("doubled"))
    monkeypatch.setattr("turnwise.records.record.read_credit", lambda reference: {})
    record = object.__new__(AblationRecord)
    vars(record).update(_experiment=experiment, _trajectories_of=lambda reference: [])
    record._trace_batch(child, run, iteration)
    assert recorded == [2.0] and experiment.rewards["format"].weight == 0.2


def test_a_number_is_told_once_and_with_its_unit(iteration: Iteration) -> None:
    assert metrics_of(iteration) == {
        "rollout/success": 0.5,
        "rollout/turns": 2.0,
        "credit/reward": 0.7,
        "horizon/limit": 4.0,
        "monitor/invalid_replies": 0.1,
        "alarm/raised": 0.0,
        "update/skipped": 0.0,
        "update/entropy_nats": 0.25,
        "update/gradient_norm": 1.5,
        "update/value_loss": 0.1,
        "seconds/sampling": 2.0,
        "seconds/worlds": 0.0,
        "seconds/credit": 0.1,
        "seconds/update": 3.0,
        "seconds/health": 0.0,
        "speed/sampled_tokens_per_second": 250.0,
    }


def test_while_a_critic_warms_up_the_warm_start_is_no_update(iteration: Iteration) -> None:
    warm_start = made("policy", {"seconds": 70.0}, warm_start_steps=400.0)
    without_update = {name: each for name, each in iteration.made.items() if name != "policy"}
    learned = made("critic", value_loss=0.3)
    own = Iteration(1, Models(warm_start, made("critic")), None, {**without_update, "critic": learned})
    assert metrics_of(own)["critic/value_loss"] == 0.3
    assert (own.policy, own.critic) == (warm_start, learned)
    on_trunk = made("policy", value_loss=0.4)
    shared = Iteration(1, Models(warm_start, warm_start), None, {**without_update, "critic": on_trunk})
    assert metrics_of(shared)["critic/value_loss"] == 0.4
    assert (shared.policy, shared.critic) == (on_trunk, on_trunk)
    for warming in (own, shared):
        assert not [name for name in metrics_of(warming) if name.startswith(("update/", "seconds/update"))]


def test_a_critic_that_the_update_trains_is_told_with_it(iteration: Iteration) -> None:
    trunk = iteration.before.policy
    on_trunk = Iteration(1, Models(trunk, trunk), None, iteration.made)
    told = metrics_of(on_trunk)
    assert told["update/value_loss"] == 0.1 and "critic/value_loss" not in told
    assert on_trunk.critic == on_trunk.policy == iteration.made["policy"]


def test_a_task_set_is_told_at_both_limits(turnwise_home: Path) -> None:
    full, short = made("evaluation", success=0.5), made("evaluation", success=0.25)
    told = evaluation_metrics("test", full, short)
    assert told == {"test/success": 0.5, "test_at_horizon/success": 0.25}
    assert evaluation_metrics("test", full, None) == {"test/success": 0.5}


def test_success_is_the_first_metric_that_is_recorded(turnwise_home: Path) -> None:
    full = made("evaluation", **{"greedy/turns": 2.0, "sampled/success": 0.5, "sampled/turns": 2.0})
    recorder = Recorder(f"sqlite:///{turnwise_home / 'mlflow.db'}", "turnwise", turnwise_home / "mlflow")
    run = recorder.parent("first", "first", {})
    run.log_iteration(0, evaluation_metrics("validation", full, None))
    recorded = sqlite3.connect(turnwise_home / "mlflow.db").execute("select key from latest_metrics order by rowid")
    assert recorded.fetchone() == ("validation/sampled/success",)


def test_parameters_that_differ_between_variants_are_sorted_before_those_that_do_not() -> None:
    experiment = load(ROOT / "params.yaml", [ROOT / "tests" / "end_to_end" / "tiny.yaml"])
    own = experiment.variant("mt-grpo").model_dump(mode="json", exclude={*BESIDE_RESULTS, "ablation", "variants"})
    variants = [experiment.variant(name).model_dump(mode="json") for name in experiment.ablation.variants]
    names = sorted(differing_first(variants, {"variant": "mt-grpo", "seed": 1, **own}))
    assert names[:4] == ["credit.estimator", "credit.options.rule", "seed", "variant"]
    assert all(name.startswith(SAME) for name in names[4:])
    assert f"{SAME}optimization.learning_rate" in names


def test_an_ablation_has_the_figures_of_its_table() -> None:
    columns = [ReportColumn(name, name, "", "up", 2, "") for name in ("exact match", "turns", "greedy exact match")]
    sampled = Interval(0.5, 0.4, 0.6, "seeds", 3)
    cells = {"exact match": sampled, "turns": Interval(2.0, None, None, "seeds", 1), "greedy exact match": None}
    report = ReportData("title", "", columns, [Row("warm start", "warm start", cells)])
    assert summary_metrics(report) == {
        "table/warm_start/sampled": 0.5,
        "table/warm_start/sampled_low": 0.4,
        "table/warm_start/sampled_high": 0.6,
    }
