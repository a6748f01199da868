"""Who makes the runs is part of a configuration, and of nothing that is recorded of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.sweep import sweep_experiment
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.runner import Runner
from turnwise.config.sweeps import Candidate
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load, single

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
ON_RAY = {"compute.runner": {"kind": "ray", "address": "head:6379", "cards": 0.5}}


def of(settings: dict[str, object]) -> Experiment:
    return load(PARAMETERS, settings=settings)


def test_nothing_that_is_recorded_and_no_cache_key_says_who_made_the_runs() -> None:
    plain, on_ray = of({}), of(ON_RAY)
    assert plain.compute.runner == Runner(kind="processes", workers=1)
    assert on_ray.compute.runner.cards == 0.5
    assert on_ray.model_dump(mode="json") == plain.model_dump(mode="json")
    learner = LearnerParameters(compute=on_ray.compute).model_dump(mode="json")
    assert learner == LearnerParameters(compute=plain.compute).model_dump(mode="json")
    assert "runner" not in learner["compute"]


def test_one_variant_of_an_ablation_is_made_where_the_ablation_would_be() -> None:
    assert single(of(ON_RAY), None, 3).compute.runner == of(ON_RAY).compute.runner


def test_the_runs_of_a_sweep_are_made_where_those_of_the_ablation_would_be() -> None:
    tried = [Candidate("slow", {"optimization.learning_rate": 1e-6})]
    assert sweep_experiment(of(ON_RAY), tried).compute.runner == of(ON_RAY).compute.runner


def test_a_number_of_processes_takes_precedence_but_not_over_a_cluster() -> None:
    assert of({}).compute.runner.with_processes(None).processes == 1
    assert of({"compute.runner.workers": 4}).compute.runner.with_processes(None).processes == 4
    assert of({"compute.runner.workers": 4}).compute.runner.with_processes(2).processes == 2
    assert of({"compute.runner.kind": "local"}).compute.runner.with_processes(3).processes == 3
    with pytest.raises(ConfigurationError, match=r"--processes.*compute\.runner.*TW-unread-option"):
        of(ON_RAY).compute.runner.with_processes(2)


@pytest.mark.parametrize("changes", [{"runner": {"workers": 2}}, {"runner": {"workers": 2}, "precision": "bfloat16"}])
def test_a_variant_cannot_say_who_makes_it(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=r"compute\.runner.*TW-variant-shared"):
        of({"variants.other": {"compute": changes}, "ablation.variants": ["other"]})
