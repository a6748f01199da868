"""Presets of variants: StarPO-S is the paper's, its controls differ from it by a part, contradictions are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import ConfigurationError
from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
OVERLAYS = [ROOT / "experiments" / name for name in ("frozen_lake.yaml", "starpo_s.yaml")]


def what_it_changes(variant: str) -> dict[str, Any]:
    experiment = load(ROOT / "params.yaml", OVERLAYS)
    base, own = (each.model_dump(mode="json") for each in (experiment.variant("starpo"), experiment.variant(variant)))
    return {
        f"{section}.{key}": value
        for section in ("selection", "optimization", "credit", "rollout")
        for key, value in own[section].items()
        if value != base[section][key]
    }


def test_starpo_s_is_the_papers_and_each_control_one_part_of_it() -> None:
    whole = {
        "selection.rule": "uncertainty",
        "selection.options": {"share": 0.25},
        "optimization.reference": None,
        "optimization.clip_low": 0.2,
        "optimization.clip_high": 0.28,
    }
    assert what_it_changes("starpo-s") == whole
    parts = [what_it_changes(name) for name in ("filter-alone", "no-kl-alone", "clip-higher-alone")]
    assert {key: value for part in parts for key, value in part.items()} == whole
    assert sum(map(len, parts)) == len(whole)
    assert what_it_changes("random-filter") == {"selection.rule": "random", "selection.options": {"share": 0.25}}


def refused(changes: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(ROOT / "params.yaml", OVERLAYS, {"variants": {"own": changes, "starpo": {}}, "ablation.variants": ["own"]})
    return str(caught.value)


def test_half_of_the_groups_may_be_kept_and_no_more() -> None:
    wider = {"preset": "starpo-s", "selection": {"options": {"share": 0.5}}}
    settings = {"variants": {"own": wider}, "ablation.variants": ["own"]}
    assert load(ROOT / "params.yaml", OVERLAYS, settings).variant("own").selection.options == {"share": 0.5}
    assert "from 0.25 to 0.5" in refused({"preset": "starpo-s", "selection": {"options": {"share": 0.8}}})


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"optimization": {"clip_high": 0.2}}, "optimization.clip_high"),
        ({"optimization": {"reference": {"coefficient": 0.1}}}, "optimization.reference"),
        ({"optimization": {"loss": "reinforce"}}, "optimization.loss"),
        ({"selection": {"rule": "all"}}, "selection.rule"),
    ],
)
def test_a_variant_that_contradicts_its_preset_is_refused(own: dict[str, Any], key: str) -> None:
    assert f"sets {key}: " in refused({"preset": "starpo-s", **own})


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    assert "did you mean 'starpo-s'?" in refused({"preset": "starpo-z"})


def test_a_part_that_the_base_has_already_changes_nothing_and_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TW-changes-nothing"):
        load(ROOT / "params.yaml", OVERLAYS, {"optimization.reference": None})
