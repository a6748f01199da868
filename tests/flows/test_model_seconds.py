"""The time left of a large policy follows from its parameters and tokens, and then from what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.plan import plan_ablation
from turnwise.experiment import Experiment, load
from turnwise.store import Reference
from turnwise.training_runs.iteration_stages import STAGES
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.work_left import EXPECTED_SECONDS, TEST, WorkLeft, model_seconds

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
SEARCH = {
    "policy.model": "smollm2-135m",
    "compute.engine": "embedded",
    "compute.engine_threads": 1,
    "compute.learner_threads": 1,
    "world.parameters": {"hops": [1, 2], "turns": 4, "passages": 2, "longest_name": 12, "needless_share": 0.0},
    "agent.maximum_reply_tokens": 48,
    "agent.context_tokens": 1024,
    "data.train_tasks": 128,
    "data.validation_tasks": 16,
    "data.test_tasks": 32,
    "warm_start.enabled": True,
    "warm_start.optimizer": "adamw",
    "warm_start.maximum_steps": 24,
    "warm_start.batch": 8,
    "warm_start.check_every": 12,
    "rollout.prompts": 8,
    "rollout.group_size": 8,
    "optimization.iterations": 6,
    "evaluation.every": 3,
    "ablation.seeds": [1],
    "ablation.variants": ["grpo-or"],
}
"""The run of SmolLM2 on search that was measured, one thread a side."""
MEASURED = {"warm_start": 290.0, "rollout": 41.0, "update": 83.0, "evaluate": 40.0, TEST: 80.0}
"""Its seconds; those of the evaluations are shares of four minutes by their tasks."""


def smollm2(**changes: object) -> Experiment:
    return load(PARAMETERS, settings={**SEARCH, **changes})


def call(kind: str) -> StageCall:
    stage, label = ("evaluate", "on the test task set") if kind == TEST else (kind, "")
    none = Reference(kind="none", digest="0" * 32)
    return StageCall(stage, label, none, False, MEASURED.get(kind, 1.0), "task/digest")


def test_a_small_policy_has_the_rough_seconds_alone() -> None:
    for model in ("scratch", "base-1m", "base-3m"):
        assert model_seconds(load(PARAMETERS, settings={"policy.model": model, "compute.engine": "embedded"})) == {}


def test_each_stage_is_estimated_within_a_factor_of_two_before_anything_is_measured() -> None:
    estimated = model_seconds(smollm2())
    for kind, seconds in MEASURED.items():
        assert seconds / 2 < estimated[kind] < 2 * seconds, (kind, estimated[kind])


def test_what_a_large_policy_adds_is_of_stages_that_there_are_the_critics_too() -> None:
    kinds = {each.task for each in STAGES} | EXPECTED_SECONDS.keys()
    estimated = model_seconds(smollm2(**{"critic.epochs": 2, "evolution.steps": 3}))
    assert estimated.keys() <= kinds
    # 64 episodes; of evolution 3 steps of 32 sequences.
    assert estimated["learn_values"] == pytest.approx(2 * estimated["update"])
    assert estimated["fine_tune"] == pytest.approx(1.5 * estimated["update"])


def test_the_bar_stands_low_when_training_begins_and_the_time_left_is_right_after_an_iteration() -> None:
    experiment = smollm2()
    stages = plan_ablation(experiment).kinds
    left = WorkLeft(stages, model_seconds(experiment))
    now = 0.0
    begun = {"task_set": 3, "demonstrations": 1, "tokenizer": 1, "converted_policy": 2, "warm_start": 1, "baseline": 2}
    for kind, number in {**begun, TEST: 1, "evaluate": 1}.items():
        for _ in range(number):
            now += MEASURED.get(kind, 1.0)
            left.count(call(kind), "one", now)
    assert 0.15 < left.share < 0.55
    for kind in ("rollout", "credit", "update", "health"):
        now += MEASURED.get(kind, 1.0)
        left.count(call(kind), "one", now)
    remaining = 5 * (MEASURED["rollout"] + MEASURED["update"]) + 2 * MEASURED["evaluate"] + MEASURED[TEST]
    estimated = left.seconds(1)
    assert estimated is not None and remaining / 1.5 < estimated < 1.5 * remaining


def test_in_bfloat16_a_processor_takes_half_the_time() -> None:
    of_float32, of_bfloat16 = (
        model_seconds(smollm2(**{"compute.precision": each})) for each in ("float32", "bfloat16")
    )
    assert {kind: 2 * seconds for kind, seconds in of_bfloat16.items()} == pytest.approx(of_float32)


@pytest.mark.parametrize("more", [{"agent.context_tokens": 2048}, {"rollout.prompts": 16}], ids=str)
def test_more_tokens_take_longer(more: dict[str, int]) -> None:
    assert model_seconds(smollm2(**more))["update"] > model_seconds(smollm2())["update"]
