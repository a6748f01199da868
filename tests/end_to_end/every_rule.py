"""Every estimator, loss, aggregation and selection, each as a small experiment that is trained through the real chain.

The test files next to this one take a family of rules each, so that test processes share them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from project_copy import ROOT, TINY

from flows.prepare import prepare_materials, prepare_policy
from flows.train import train
from turnwise.credit import ESTIMATORS
from turnwise.credit.selection import RULES
from turnwise.experiment import Experiment, load
from turnwise.policy.learner.losses import LOSSES
from turnwise.store import default_store
from turnwise.training_runs.state import Iteration, Prepared

TINY_SEARCH = Path(__file__).parent / "tiny_search.yaml"
WORLDS = {"frozen_lake": [TINY], "search": [TINY, TINY_SEARCH]}

TREES: dict[str, Any] = {"rollout.scheme": "tree", "rollout.trees": 2, "rollout.group_size": 6}
CREDIT: dict[str, dict[str, Any]] = {
    **{name: {"credit.estimator": name} for name in ESTIMATORS if name not in ("mt-grpo", "tree-grpo", "at2po")},
    **{name: {"credit.estimator": name, **TREES} for name in ("tree-grpo", "at2po")},
    **{
        f"mt-grpo {rule}": {"credit.estimator": "mt-grpo", "credit.options": {"rule": rule}}
        for rule in ("paper", "per-index", "padded", "return-to-go")
    },
    "gae with outcome rewards": {"credit.estimator": "gae", "credit.options": {"rewards": "outcome"}},
    "gae on the policy's trunk": {
        "credit.estimator": "gae",
        "critic.trunk": "policy",
        "critic.coefficient": 0.5,
    },
    "archer with two critics": {
        "credit.estimator": "archer",
        "critic.heads": 2,
        "critic.clip": None,
    },
    "a thought's own credit": {"credit.thought": {"estimator": "rloo", "options": {}, "weight": 0.5}},
}
LOSS: dict[str, dict[str, Any]] = {
    **{name: {"optimization.loss": name, "optimization.mini_batches": 2} for name in LOSSES},
    "dual clip": {"optimization.dual_clip": 3.0},
    "sequence-mean": {"optimization.aggregation": "sequence-mean"},
    "prompt-mean": {"optimization.aggregation": "prompt-mean"},
    "constant": {"optimization.aggregation": "constant", "optimization.aggregation_constant": 48},
    "turns as samples": {"optimization.sample": "turn"},
    "entropy": {"optimization.entropy_coefficient": 0.01},
    "penalty in the loss": {"optimization.reference": {"coefficient": 0.1, "estimator": "k3", "place": "loss"}},
    "penalty in the reward": {
        "credit.estimator": "reinforce++",
        "optimization.reference": {"coefficient": 0.1, "estimator": "k1", "place": "reward"},
    },
    "tokens of high entropy": {"optimization.token_selection": {"rule": "top-entropy", "options": {"share": 0.5}}},
    "held tokens of masked sequences": {
        "optimization.token_selection": {"rule": "kl-cov"},
        "optimization.off_policy_bound": 0.1,
        "optimization.mini_batches": 2,
        "optimization.correction": {"kind": "none", "sequence_mask": {"over": "mean", "of": "k1", "high": 2.0}},
    },
    "distillation": {"optimization.distillation": {"weight": 0.5, "interpolation": 0.5}},
    "corrected": {"optimization.correction": {"kind": "truncate", "level": "token", "high": 2.0}},
}
OF_EXPERIMENTS = {"compute.engine": "vllm" if find_spec("vllm") else "embedded"}
"""The engine that experiments ask for, where it is installed: for what is sampled in a way of its own."""
BATCH: dict[str, dict[str, Any]] = {
    **{f"selection {rule}": {"selection.rule": rule} for rule in RULES if rule != "all"},
    "an adapter": {"optimization.adapter": {"rank": 4, "alpha": 8}, **OF_EXPERIMENTS},
    "trees": {**TREES, "rollout.prompts": 2, **OF_EXPERIMENTS},
    "branching": {"rollout.scheme": "branching", "rollout.prompts": 2, **OF_EXPERIMENTS},
}
LEAN: dict[str, Any] = {
    "rollout.prompts": 4,
    "data.validation_tasks": 2,
    "data.test_tasks": 2,
    "evaluation.samples": 1,
    "evaluation.every": 2,
    "monitors.probe_every": None,
    "variants": {"grpo-or": {}},
    "ablation.variants": ["grpo-or"],
}
"""What of an experiment is no rule costs as little as it can."""


def experiment(world: str, settings: dict[str, Any]) -> Experiment:
    return load(ROOT / "params.yaml", WORLDS[world], {**LEAN, **settings})


def trained(chosen: Experiment) -> tuple[Prepared, list[Iteration]]:
    """What training began with, and its iterations."""
    prepared = prepare_policy(chosen, prepare_materials(chosen))
    return prepared, train(chosen, prepared, "grpo-or", 1).iterations


def require_trains(world: str, rule: str) -> None:
    """Fail unless the policy has changed, with gradients where it did, and a critic where the rule needs one."""
    chosen = experiment(world, {**CREDIT, **LOSS, **BATCH}[rule])
    prepared, iterations = trained(chosen)
    assert iterations[-1].policy.digest != prepared.warm_start.digest
    for iteration in iterations:
        metrics = default_store().metrics(iteration.policy)
        if metrics["skipped"]:
            continue
        assert metrics["mismatch"] < 1e-5
        assert metrics["gradient_norm"] > 0
    needs_critic = "values" in ESTIMATORS[chosen.credit.estimator].needs
    for iteration in iterations:
        assert (iteration.critic is not None) == needs_critic
        if iteration.critic is not None:
            assert default_store().metrics(iteration.critic)["value_gradient_norm"] > 0


def require_warm_up(world: str) -> None:
    """Fail unless the critic alone learns in an iteration of its warm-up."""
    prepared, iterations = trained(experiment(world, {"credit.estimator": "gae", "critic.warm_up": 1}))
    assert iterations[0].policy == prepared.warm_start
    assert iterations[0].critic != iterations[1].critic
    assert iterations[1].policy != prepared.warm_start
