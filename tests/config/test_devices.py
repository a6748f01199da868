"""One run over several processes: what is refused, and what the default leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config.model_settings import LearnerParameters
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
        ("compute.compiled", True, r"compute\.compiled.*TW-not-in-parallel"),
        ("compute.moments", "bfloat16", r"compute\.moments.*float32.*TW-not-in-parallel"),
        ("optimization.adapter", {"rank": 8, "alpha": 16}, r"optimization\.adapter.*TW-not-in-parallel"),
    ],
)
def test_what_cannot_be_sliced_is_refused(key: str, value: object, expected: str) -> None:
    of({key: value})
    with pytest.raises(ConfigurationError, match=expected):
        of({"compute.learner_processes": 2, key: value})


def test_several_processes_take_no_steps_of_muon() -> None:
    muon = {"compute.learner_processes": 2, "warm_start.optimizer": "muon"}
    of({**muon, "warm_start.enabled": False})
    of({**muon, "warm_start.enabled": True, "warm_start.optimizer": "adamw"})
    with pytest.raises(ConfigurationError, match=r"warm_start\.optimizer.*TW-not-in-parallel"):
        of({**muon, "warm_start.enabled": True})


def test_a_cluster_must_give_a_run_a_card_for_each_process() -> None:
    ray = {"compute.runner": {"kind": "ray", "address": "head:6379", "cards": 1.0}, "compute.device": "cuda"}
    of(ray)
    with pytest.raises(ConfigurationError, match=r"\b2\b.*TW-too-few-cards"):
        of({**ray, "compute.learner_processes": 2})
    with pytest.raises(ConfigurationError, match=r"variant 'wide'.*\b2\b.*TW-too-few-cards"):
        of({**ray, "variants.wide": {"compute": {"learner_processes": 2}}, "ablation.variants": ["wide"]})


def test_engines_are_part_of_a_key_above_one_and_of_no_record_at_the_default() -> None:
    default = of({}).compute.model_dump(mode="json")
    assert not {"engines", "tensor_parallel", "engines_apart"} & default.keys()
    assert of({"compute.engines": 1, "compute.tensor_parallel": 1}).compute.model_dump(mode="json") == default
    assert of({"compute.engines": 2}).compute.model_dump(mode="json") == {**default, "engines": 2}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"compute.engines": 200}, r"compute\.engines.*rollout\.prompts.*TW-engines-share"),
        ({"compute.engines_apart": True}, "TW-conflicting-options"),
        ({"compute.engine": "embedded", "compute.tensor_parallel": 2}, "TW-conflicting-options"),
        ({"compute.engine": "vllm", "compute.tensor_parallel": 3}, r"compute\.tensor_parallel.*TW-engines-share"),
    ],
)
def test_engines_that_cannot_be_are_refused(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        of(settings)


def test_a_cluster_must_give_a_run_the_cards_of_its_engines() -> None:
    ray = {"compute.runner": {"kind": "ray", "address": "head:6379", "cards": 2.0}, "compute.device": "cuda"}
    of({**ray, "compute.engines": 2})
    with pytest.raises(ConfigurationError, match=r"\b3\b.*TW-too-few-cards"):
        of({**ray, "compute.engines": 2, "compute.engines_apart": True})
