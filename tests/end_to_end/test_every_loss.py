"""Every loss, with its aggregations, penalties and corrections, trains a small search agent."""

from __future__ import annotations

from typing import Any

import pytest
from every_rule import LOSS, experiment, require_trains, trained

from turnwise.store import default_store

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


# How a batch is trained on does not depend on the world that it is from.
@pytest.mark.parametrize("rule", LOSS)
def test_every_rule_trains(rule: str) -> None:
    require_trains("search", rule)


def test_an_adaptive_penalty_goes_on_from_the_coefficient_of_the_last_iteration() -> None:
    penalty = {"coefficient": 0.1, "estimator": "k3", "adaptive": {"target": 0.001, "horizon": 100}}
    _, iterations = trained(experiment("frozen_lake", {"optimization.reference": penalty}))
    metrics = [default_store().metrics(iteration.policy) for iteration in iterations]
    assert metrics[0]["kl_coefficient"] == 0.1
    assert metrics[0]["kl_coefficient_next"] != 0.1
    assert metrics[1]["kl_coefficient"] == metrics[0]["kl_coefficient_next"]


@pytest.mark.parametrize(
    "settings",
    [
        {"optimization.distillation": {"teacher": "base-3m"}},
        {"credit.estimator": "self-distillation", "credit.options": {"teacher": "base-3m"}},
    ],
    ids=["the whole vocabulary", "sampled tokens"],
)
def test_a_policy_learns_from_another_one(settings: dict[str, Any]) -> None:
    chosen = experiment("search", {"policy.model": "base-1m", "warm_start.enabled": False, **settings})
    prepared, iterations = trained(chosen)
    metrics = [default_store().metrics(iteration.policy) for iteration in iterations]
    assert all(each["gradient_norm"] > 0 for each in metrics)
    assert ("teacher_divergence" in metrics[0]) is ("optimization.distillation" in settings)
    assert iterations[-1].policy.digest != prepared.warm_start.digest
