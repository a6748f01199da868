"""Other systems' names lead to settings that there are, and a name of theirs is answered with ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.coming_from import page
from turnwise.config.peer_names import ANY, SYSTEMS, PeerName, peer_answer, peer_names
from turnwise.credit import ESTIMATORS
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.learner.losses import LOSSES

ROOT = Path(__file__).parents[2]
NUMBERS = {"optimization.clip_low": 0.2, "optimization.aggregation_constant": 512.0, "optimization.dual_clip": 3.0}
ALONE: dict[str, Any] = {"variants": {"base": {}}, "ablation.variants": ["base"]}


def title(row: PeerName) -> str:
    return f"{row.system}-{row.key}-{row.value}"


def with_numbers(value: Any, key: str = "") -> Any:
    """The settings of a row with a number for each that the user chooses."""
    if isinstance(value, Mapping):
        return {name: with_numbers(inner, name) for name, inner in value.items()}
    chosen = isinstance(value, str) and (value == ANY or value == "y" or value.startswith(f"{ANY} "))
    return NUMBERS.get(key, 0.28) if chosen else value


@pytest.mark.parametrize("row", peer_names(), ids=title)
def test_every_row_leads_to_settings_that_an_experiment_can_have(row: PeerName) -> None:
    needed = {**ALONE, **({"credit.options": {}} if "credit.estimator" in row.ours else {})}
    load(ROOT / "tests" / "parameters.yaml", [], {**needed, **with_numbers(row.ours)})


def test_no_setting_of_a_system_is_listed_twice() -> None:
    keys = [(row.system, row.key, row.value) for row in peer_names()]
    assert len(set(keys)) == len(keys)
    assert {row.system for row in peer_names()} == set(SYSTEMS)


def test_the_page_is_made_from_the_table() -> None:
    written = (ROOT / "docs" / "coming-from.md").read_text()
    assert written == page(), "write it again: python -m lab.coming_from > docs/coming-from.md"
    assert all(row.key in written for row in peer_names())


@pytest.mark.parametrize(
    ("key", "name", "answer"),
    [
        ("optimization.loss", "ppo", r"OpenRLHF \(actor.policy_loss_type\) that is optimization.loss: clipped"),
        ("optimization.loss", "grpo", r"TRL \(loss_type\).*loss: clipped, optimization.aggregation: sequence-mean"),
        ("optimization.loss", "dapo", r"TRL \(loss_type\) that is .*clipped, optimization.aggregation: token-mean"),
        ("optimization.loss", "bnpo", "optimization.loss: clipped, optimization.aggregation: token-mean"),
        ("optimization.loss", "dr_grpo", "optimization.loss: clipped, optimization.aggregation: constant"),
        ("optimization.loss", "vanilla", "optimization.loss: clipped, optimization.dual_clip: 3.0"),
        ("optimization.aggregation", "seq-mean-token-mean", "verl .*optimization.aggregation: sequence-mean"),
        ("optimization.aggregation", "token_mean", "SkyRL .*optimization.aggregation: token-mean"),
        ("optimization.reference", {"coefficient": 0.1, "estimator": "low_var_kl"}, "estimator: k3, clamp: 10.0"),
        ("credit.estimator", "ppo", "credit.estimator: gae"),
        ("credit.estimator", "reinforce_plus_plus_baseline", r"credit\.estimator: reinforce\+\+-baseline"),
        ("credit.estimator", "group_norm", "credit.estimator: grpo"),
        ("credit.estimator", "dapo", "credit.estimator: grpo"),
    ],
)
def test_a_name_of_another_system_is_answered_with_ours(key: str, name: Any, answer: str) -> None:
    with pytest.raises(ConfigurationError, match=answer) as refused:
        load(ROOT / "tests" / "parameters.yaml", [], {key: name})
    assert "did you mean" not in str(refused.value)
    assert "docs/coming-from.md" in str(refused.value)


def test_a_misspelling_is_still_answered_with_the_nearest_name() -> None:
    for key, name, nearest in (("optimization.loss", "cliped", "clipped"), ("credit.estimator", "gipgo", "gigpo")):
        with pytest.raises(ConfigurationError, match=f"did you mean '{nearest}'"):
            load(ROOT / "tests" / "parameters.yaml", [], {key: name})
    assert peer_answer("optimization.loss", "nothing of the kind") == ""


def test_a_name_that_is_ours_under_another_key_is_no_answer_of_its_own() -> None:
    """What is accepted never asks the table, so that a name of ours may mean something else elsewhere."""
    for name in (*ESTIMATORS, *LOSSES):
        assert not re.search(r"did you mean", peer_answer("optimization.loss", name))
