"""Overlays that are given as values are what a file with the same sections would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from turnwise.errors import ConfigurationError
from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
PARAMETERS = ROOT / "params.yaml"
SECTIONS: dict[str, Any] = {
    "world": {"name": "bandit", "parameters": {}},
    "rewards": {"payoff": {"level": "turn", "weight": 1.0}},
    "agent": {"format": "think-answer"},
    "credit": {"estimator": "grpo"},
    "ablation": {"name": "values", "seeds": [3], "variants": ["grpo"]},
    "variants": {"grpo": {}},
}


def test_sections_given_as_values_are_laid_as_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    with file.open("w") as written:
        YAML().dump(SECTIONS, written)
    assert load(PARAMETERS, [SECTIONS]) == load(PARAMETERS, [file])
    assert load(PARAMETERS, [SECTIONS]).rewards.keys() == {"payoff"}, "rewards of two worlds do not combine"


def test_what_is_laid_later_wins_and_settings_win_last(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("optimization: { iterations: 7 }\n")
    values = {"optimization": {"iterations": 8}}
    assert load(PARAMETERS, [file, values]).optimization.iterations == 8
    assert load(PARAMETERS, [values, file]).optimization.iterations == 7
    assert load(PARAMETERS, [file, values], {"optimization.iterations": 9}).optimization.iterations == 9


def test_a_mistake_in_values_has_no_place_in_a_file_and_one_in_a_file_keeps_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as found:
        load(PARAMETERS, [{"optimization": {"iterations": -1}}])
    assert str(found.value).startswith("optimization.iterations must be")
    file = tmp_path / "overlay.yaml"
    file.write_text("optimization: { iterations: -1 }\n")
    with pytest.raises(ConfigurationError, match=r"optimization\.iterations.*TW-option-range"):
        load(PARAMETERS, [{"rollout": {"prompts": 8}}, file])
