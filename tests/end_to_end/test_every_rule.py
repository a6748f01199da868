"""Every estimator, loss, aggregation and selection trains small policies through the real chain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.prepare import Prepared, prepare_materials, prepare_policy
from flows.run import run_variant
from flows.run_state import Iteration
from turnwise.credit import ESTIMATORS
from turnwise.credit.selection import RULES
from turnwise.experiment import Experiment, load
from turnwise.policy.learner.losses import LOSSES
from turnwise.store import default_store

pytestmark = [pytest.mark.engine, pytest.mark.chain]

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).parent / "tiny.yaml"
TINY_SEARCH = Path(__file__).parent / "tiny_search.yaml"
WORLDS = {"frozen_lake": [TINY], "search": [TINY, TINY_SEARCH]}

CREDIT: dict[str, dict[str, Any]] = {
    **{name: {"credit.estimator": name} for name in ESTIMATORS if name != "mt-grpo"},
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
    "a thought's own credit": {"credit.thought": {"estimator": "rloo", "options": {}, "weight": 0.5}},
}
OPTIMIZATION: dict[str, dict[str, Any]] = {
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
    "corrected": {"optimization.correction": {"kind": "truncate", "level": "token", "high": 2.0}},
    **{f"selection {rule}": {"selection.rule": rule} for rule in RULES if rule != "all"},
    "an adapter": {"optimization.adapter": {"rank": 4, "alpha": 8}},
    "branching": {"rollout.scheme": "branching", "rollout.prompts": 2},
}
LEAN: dict[str, Any] = {
    "compute.engine": "vllm",
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


@pytest.fixture(scope="module", autouse=True)
def home(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One home for all: what is prepared, and the first rollout, is computed once for each world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(tmp_path_factory.mktemp("every_rule")))
        yield


def trained(chosen: Experiment) -> tuple[Prepared, list[Iteration]]:
    prepared = prepare_policy(chosen, prepare_materials(chosen))
    return prepared, run_variant(chosen, prepared, "grpo-or", 1).iterations


@pytest.mark.parametrize(
    ("world", "rule"),
    # What a batch is made of depends on the world; how it is trained on does not.
    [*((world, rule) for world in WORLDS for rule in CREDIT), *(("search", rule) for rule in OPTIMIZATION)],
)
def test_every_rule_trains(world: str, rule: str) -> None:
    chosen = experiment(world, {**CREDIT, **OPTIMIZATION}[rule])
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


@pytest.mark.parametrize("world", WORLDS)
def test_while_the_critic_warms_up_the_policy_stays(world: str) -> None:
    prepared, iterations = trained(experiment(world, {"credit.estimator": "gae", "critic.warm_up": 1}))
    assert iterations[0].policy == prepared.warm_start
    assert iterations[0].critic != iterations[1].critic
    assert iterations[1].policy != prepared.warm_start


def test_a_selection_says_what_it_dropped_and_trains_on_the_rest() -> None:
    _, iterations = trained(experiment("frozen_lake", {"selection.rule": "uncertainty"}))
    for iteration in iterations:
        assert iteration.selection is not None
        record = default_store().metrics(iteration.selection)
        assert (record["groups_sampled"], record["groups_kept"]) == (4, 1)
        assert default_store().metrics(iteration.credit)["groups"] == 1


def test_a_whole_trajectory_and_its_turns_as_samples_have_the_same_first_gradient() -> None:
    # With the token mean the same tokens weigh the same; only the contexts are computed anew.
    chosen = {"optimization.mini_batches": 1}
    whole, turns = (
        default_store().metrics(
            trained(experiment("frozen_lake", {**chosen, "optimization.sample": sample}))[1][0].policy
        )
        for sample in ("trajectory", "turn")
    )
    assert turns["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-4)
