"""The stage `return_to`: the healthy policy again, as an artifact that depends on the alarm."""

from __future__ import annotations

import json

from stage_samples import Small

from tasks.health.health import ReturnParameters, return_to
from turnwise.health.record import HEALTH_FILE
from turnwise.store import Reference, default_store


def record(healthy: int, returns: int) -> Reference:
    """A health record of a run that returns."""
    alarm = {
        "iteration": 5,
        "counts": {},
        "healthy": healthy,
        "returns": returns,
        "on": ["entropy"],
        "raised": {"entropy": "entropy must be at most 1.5"},
        "response": "return",
        "change": None,
    }
    with default_store().write("health") as draft:
        content = {"monitors": [], "in_a_row": {}, "alarm": alarm, "horizon": {"limit": 2, "batches": []}}
        (draft.folder / HEALTH_FILE).write_text(json.dumps(content))
    return draft.reference


def test_every_file_is_that_of_the_policy_and_the_metrics_say_where_it_is_from(small: Small) -> None:
    returned = return_to.fn(ReturnParameters(), policy=small.policy, health=record(3, 1))
    assert default_store().manifest(returned).files == default_store().manifest(small.policy).files
    assert default_store().metrics(returned) == {"returned_to": 3.0, "returns": 1.0}
    assert returned.kind == "policy" and returned != small.policy


def test_an_adapted_penalty_goes_on_with_the_coefficient_of_the_policy_returned_to(small: Small) -> None:
    with default_store().write("policy") as draft:
        draft.begin_with(default_store().folder(small.policy))
        draft.metrics.update(kl_coefficient=0.5, kl_coefficient_next=0.7)
    returned = return_to.fn(ReturnParameters(), policy=draft.reference, health=record(3, 1))
    assert default_store().metrics(returned) == {"returned_to": 3.0, "returns": 1.0, "kl_coefficient_next": 0.7}


def test_a_second_return_to_the_same_policy_is_another_artifact(small: Small) -> None:
    first, second = (
        return_to.fn(ReturnParameters(), policy=small.policy, health=record(3, returns)) for returns in (1, 2)
    )
    assert first != second
