"""`turnwise pretrain`: a base policy of two worlds, from which an experiment starts by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from flows.prepare import prepare_materials, prepare_policy
from lab.pretraining.configuration import Pretraining, load_pretraining
from lab.pretraining.pretrain import pretrain
from tests.end_to_end.project_copy import ROOT, TINY
from tests.stage_calls import computed, stage_calls
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy import pretrained
from turnwise.store import default_store

SMALL = """
seed: 0
vocabulary: 300
context_tokens: 160
observed_share: 0.5
worlds:
  lake: { overlays: [tests/end_to_end/tiny.yaml], tasks: 16, noise: 0.2, weight: 1.0 }
  search:
    overlays: [tests/end_to_end/tiny.yaml, tests/end_to_end/tiny_search.yaml]
    tasks: 16
    noise: 0.2
    weight: 1.0
copying:
  sequences: 16
  longest_span: 6
  repetition_tokens: 20
  facts: 3
  longest_name: 5
  weight: 1.0
training:
  phases:
    - { steps: 1, batch: 4, sources: [recalls] }
    - { steps: 3, batch: 4, sources: null }
  steps_per_stage: 2
  learning_rate_warmup: 1
  final_learning_rate: 0.0001
  weight_decay: 0.1
  micro_batch_tokens: 512
  threads: 1
policies:
  base-tiny: { hidden: 64, layers: 1, heads: 2, feed_forward: 64, initial_deviation: 0.05, learning_rate: 0.003 }
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Pretraining:
    (tmp_path / "small.yaml").write_text(SMALL)
    return load_pretraining(tmp_path / "small.yaml")


def test_a_base_policy_is_made_once_and_an_experiment_starts_from_it(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configuration: Pretraining
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    folder, console = tmp_path / "base", Console(quiet=True)
    with stage_calls() as calls:
        pretrain(configuration, [], folder, console)
    assert computed(calls).count("pretraining") == 2
    card = (folder / "base-tiny" / "README.md").read_text()
    assert "| lake | " in card
    assert "| search | " in card
    before = (folder / "base-tiny" / "model.safetensors").read_bytes()
    with stage_calls() as again:
        pretrain(configuration, ["base-tiny"], folder, console)
    assert computed(again) == []
    assert (folder / "base-tiny" / "model.safetensors").read_bytes() == before

    monkeypatch.setattr(pretrained, "BASE_POLICIES", folder)
    chosen = load(ROOT / "params.yaml", [TINY], {"policy.model": "base-tiny", "warm_start.enabled": False})
    begun = prepare_policy(chosen, prepare_materials(chosen)).warm_start
    assert (default_store().folder(begun) / "model.safetensors").read_bytes() == before


def test_an_unknown_base_policy_and_an_unknown_key_are_refused_by_name(
    tmp_path: Path, configuration: Pretraining
) -> None:
    with pytest.raises(ConfigurationError, match=r"base-tiny.*TW-unknown-policy"):
        pretrain(configuration, ["base-tinny"], tmp_path, Console(quiet=True))
    (tmp_path / "wrong.yaml").write_text(SMALL.replace("facts:", "fact:"))
    with pytest.raises(ConfigurationError, match=r"copying.*TW-unknown-option"):
        load_pretraining(tmp_path / "wrong.yaml")


def test_the_repositorys_own_configuration_can_be_loaded_with_all_its_worlds() -> None:
    from lab.pretraining.pretrain import experiments_of

    configuration = load_pretraining(ROOT / "experiments" / "pretraining" / "base.yaml")
    assert sorted(experiments_of(configuration)) == sorted(configuration.worlds)


def test_the_base_policies_read_their_worlds_as_they_did_when_they_were_made() -> None:
    """Another world under experiments/worlds would be another corpus than the cards of turnwise/policy/base name.

    A world that is to change there keeps here what was read, by an overlay of its own: experiments/pretraining.
    """
    from lab.pretraining.pretrain import experiments_of

    experiments = experiments_of(load_pretraining(ROOT / "experiments" / "pretraining" / "base.yaml"))
    parameters = {name: experiment.world.parameters for name, experiment in experiments.items()}
    assert {name: parameters[name] for name in sorted(parameters) if not name.startswith("search")} == {
        "babyai": {"levels": ["GoToRedBallNoDists"], "turns": 12},
        "bandit": {"unseen": "pairs"},
        "frozen_lake": {"size": 4, "frozen": 0.8, "success_rate": 0.8, "turns": 8, "actions_per_turn": 1, "actions": 8},
        "sokoban": {},
        "taxi": {"id": "Taxi-v4"},
        "textcraft": {"depths": [1, 2], "distractors": 2, "turns": 8},
        "webshop": {"turns": 8},
    }
    questions = {"longest_name": 8, "needless_share": 0.1, "passages": 2}
    for name, asked in {"search": {"hops": [1], "turns": 2}, "search_turns": {"hops": [2, 3], "turns": 6}}.items():
        assert parameters[name].items() >= {**questions, **asked}.items()
