"""The presets of `experiments/paper` say what the papers say: numbers copied from the papers and their releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.experiment import Experiment, load

ROOT = Path(__file__).parents[2]


def paper(name: str, variant: str | None = None) -> Experiment:
    experiment = load(ROOT / "params.yaml", [ROOT / "experiments" / "paper" / f"{name}.yaml"], to_plan=True)
    return experiment if variant is None else experiment.variant(variant)


def weights(experiment: Experiment, level: str) -> dict[str, float]:
    return {name: each.weight for name, each in experiment.rewards.items() if each.level == level and each.weight}


def steps(experiment: Experiment) -> int:
    """Optimizer steps of a run."""
    optimization = experiment.optimization
    return optimization.iterations * optimization.epochs * optimization.mini_batches


def test_mt_grpo_is_the_papers() -> None:
    first = paper("mt_grpo")
    assert (first.policy.model, first.warm_start.enabled) == ("Qwen/Qwen2.5-7B", False)
    assert (first.rollout.prompts, first.rollout.group_size, first.rollout.temperature) == (16, 21, 0.9)
    # `num_iterations` 2 and 300 steps: 150 batches, each of them twice and as a whole.
    assert (first.optimization.epochs, first.optimization.mini_batches, steps(first)) == (2, 1, 300)
    assert first.optimization.betas == (0.9, 0.99)
    assert (first.optimization.learning_rate, first.optimization.learning_rate_warmup) == (1e-6, 20)
    assert first.optimization.learning_rate_schedule == "constant"
    assert (first.optimization.maximum_gradient_norm, first.optimization.reference) == (0.1, None)
    assert (first.made_world.limits.turns, first.world.parameters["passages"]) == (2, 1)


def test_mt_grpos_rewards_sum_to_the_papers_largest() -> None:
    turn, outcome = weights(paper("mt_grpo"), "turn"), weights(paper("mt_grpo"), "outcome")
    assert turn == {"tool_execution": 0.2, "answer_in_results": 0.5}
    assert outcome == {"exact_match": 1.0, "answer_present": 0.5, "format": 0.2, "tags": 0.2}
    assert sum(turn.values()) == pytest.approx(0.7)
    assert sum(outcome.values()) == pytest.approx(1.9)


@pytest.mark.parametrize(
    ("variant", "estimator", "options"),
    [
        ("grpo-or", "grpo", {"rewards": "outcome"}),
        ("grpo-mr", "grpo", {"rewards": "merged"}),
        ("mt-grpo", "mt-grpo", {"rule": "paper"}),
    ],
)
def test_mt_grpos_rows_differ_in_their_credit_alone(variant: str, estimator: str, options: dict[str, Any]) -> None:
    own, base = paper("mt_grpo", variant), paper("mt_grpo")
    assert (own.credit.estimator, own.credit.options) == (estimator, options)
    sections = set(type(own).model_fields) - {"credit"}
    assert all(getattr(own, section) == getattr(base, section) for section in sections)
