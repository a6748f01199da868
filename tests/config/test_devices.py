"""One run over several processes: what is refused, and what the default leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.models_in_memory import LearnerParameters
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"


def of(settings: dict[str, object]) -> Experiment:
    experiment = load(PARAMETERS, settings=settings)
    experiment.require_sense()
    return experiment


def test_the_default_is_in_no_record_and_no_cache_key_and_any_other_number_is() -> None:
    default, one, two = (of(each) for each in ({}, {"compute.learner_processes": 1}, {"compute.learner_processes": 2}))
    keys = [LearnerParameters(compute=each.compute).model_dump(mode="json")["compute"] for each in (default, one, two)]
    assert keys[0] == keys[1] and "learner_processes" not in keys[0]
    assert keys[2] == {**keys[0], "learner_processes": 2}
    assert default.model_dump(mode="json") == one.model_dump(mode="json")


def test_variants_are_trained_by_as_many_processes() -> None:
    experiment = of({"compute.learner_processes": 2})
    for name in experiment.ablation.variants:
        assert experiment.variant(name).compute.learner_processes == 2


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("compute.compiled", True, "compute.compiled must be false where compute.learner_processes is above 1"),
        ("compute.moments", "bfloat16", "compute.moments must be float32 where"),
        ("optimization.adapter", {"rank": 8, "alpha": 16}, "optimization.adapter must be null where"),
    ],
)
def test_what_cannot_be_sliced_is_refused(key: str, value: object, expected: str) -> None:
    of({key: value})
    with pytest.raises(ConfigurationError, match=expected):
        of({"compute.learner_processes": 2, key: value})


def test_a_cluster_must_give_a_run_a_card_for_each_process() -> None:
    ray = {"compute.runner": {"kind": "ray", "address": "head:6379", "cards": 1.0}, "compute.device": "cuda"}
    of(ray)
    with pytest.raises(ConfigurationError, match=r"must be at least compute\.learner_processes, 2"):
        of({**ray, "compute.learner_processes": 2})
