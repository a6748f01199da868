"""Every loss, with its aggregations, penalties and corrections, trains a small search agent."""

from __future__ import annotations

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
