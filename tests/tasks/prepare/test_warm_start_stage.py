"""The stage `warm_start`: supervised steps until the policy plays well enough."""

from __future__ import annotations

import json
from typing import Any

from safetensors.numpy import load_file
from stage_samples import Small

from tasks.prepare.warm_start import CURVE_FILE, WarmStartParameters, warm_start
from turnwise.policy.learner.learner import OPTIMIZER_FILE
from turnwise.store import Reference, default_store


def started(small: Small, **changes: Any) -> Reference:
    section = small.experiment.warm_start.model_copy(
        update={"maximum_steps": 4, "check_every": 2, "batch": 4, "learning_rate_warmup": 2, **changes}
    )
    return warm_start.fn(
        WarmStartParameters(**dict(small.play), compute=small.experiment.compute, warm_start=section),
        policy=small.policy,
        tokenizer=small.tokenizer,
        demonstrations=small.demonstrations,
        task_set=small.task_sets["validation"],
    )


def curve(reference: Reference) -> list[dict[str, float]]:
    return json.loads((default_store().folder(reference) / CURVE_FILE).read_text())


def test_every_check_is_a_point_of_the_curve_and_the_last_is_in_the_metrics(small: Small) -> None:
    reference = started(small)
    first, last = curve(reference)
    assert (first["step"], last["step"]) == (2, 4)
    assert last["loss"] < first["loss"], "two more steps on the same twelve demonstrations"
    assert 0.0 <= last["validation"] <= 1.0
    assert default_store().metrics(reference) == {f"warm_start_{name}": value for name, value in last.items()}


def test_it_stops_as_soon_as_the_threshold_is_reached(small: Small) -> None:
    (only,) = curve(started(small, threshold=0.0))
    assert only["step"] == 2


def test_weights_are_learned_and_the_optimizer_begins_fresh(small: Small) -> None:
    reference = started(small, maximum_steps=1)
    folder = default_store().folder(reference)
    assert not (folder / OPTIMIZER_FILE).exists()
    before, after = (
        load_file(default_store().folder(each) / "model.safetensors") for each in (small.policy, reference)
    )
    assert before.keys() == after.keys()
    assert all((before[name] != after[name]).any() for name in before if name.endswith("proj.weight"))


def test_the_optimizer_is_the_one_that_is_asked_for(small: Small) -> None:
    by_muon = started(small, maximum_steps=1, optimizer="muon")
    assert by_muon != started(small, maximum_steps=1, optimizer="adamw")
    assert not (default_store().folder(by_muon) / OPTIMIZER_FILE).exists()


def test_the_same_call_gives_the_same_policy_and_another_seed_another(small: Small) -> None:
    assert started(small, maximum_steps=1) == started(small, maximum_steps=1)
    assert started(small, maximum_steps=1, seed=9) != started(small, maximum_steps=1)
