"""The facts of published models are those that are published of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_shapes import QWEN

from turnwise.experiment import load
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count, facts, known_dimensions

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
CONFIGURATIONS = {entry["models"][0]: entry for entry in facts()["configurations"]}


@pytest.mark.parametrize("model", CONFIGURATIONS)
def test_the_sizes_give_the_number_of_parameters_that_is_published(model: str) -> None:
    dimensions = known_dimensions(model)
    assert dimensions is not None and count(dimensions.shapes) == CONFIGURATIONS[model]["parameters"]


@pytest.mark.parametrize("size", QWEN)
def test_they_are_those_of_the_configurations_that_the_tests_hold(size: str) -> None:
    configuration = CONFIGURATIONS[f"Qwen/Qwen2.5-{size}"]["config"]
    assert {name: configuration[name] for name in QWEN[size]} == QWEN[size]


def test_no_model_is_listed_twice() -> None:
    names = [name for entry in facts()["configurations"] for name in entry["models"]]
    assert len(names) == len(set(names))


def test_a_plan_knows_them_without_their_files() -> None:
    section = load(PARAMETERS).policy
    dimensions = dimensions_of(section.model_copy(update={"model": "Qwen/Qwen2.5-7B"}))
    assert dimensions is not None and dimensions.layers == 28
    assert dimensions_of(section.model_copy(update={"model": "lab/another"})) is None
