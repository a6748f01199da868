"""What a stage reads from outside is part of its key: its content, not where it lies or what it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage_samples import rollout_parameters

from tasks.caching import cache_key, recompute
from tasks.prepare.imitation import ConversationParameters, conversations
from tasks.prepare.materials import PolicyParameters, TokenizerParameters, initial_policy, tokenizer
from tasks.rollout.rollout import rollout
from turnwise.config.schema import WorldSection
from turnwise.experiment import Experiment, load
from turnwise.policy.pretrained import pretrained
from turnwise.store import Reference, default_store, fingerprint
from turnwise.store.plugin_identity import outside_file
from turnwise.training_runs.state import play_parameters

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
NOTHING = Reference(kind="nothing", digest="0" * 32)


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """Sources are read once per process; each test is to see its own."""
    forget_sources()
    yield
    forget_sources()


def forget_sources() -> None:
    fingerprint._read.cache_clear()
    fingerprint._closure.cache_clear()
    fingerprint._is_uninstalled.cache_clear()
    importlib.invalidate_caches()


def experiment(*settings: str) -> Experiment:
    return load(ROOT / "params.yaml", [TINY], settings)


def rollout_key(chosen: Experiment, world: WorldSection) -> str:
    parameters = rollout_parameters(play_parameters(chosen), chosen.compute, world=world)
    return cache_key(rollout, parameters, policy=NOTHING, tokenizer=NOTHING, task_set=NOTHING)


def of_new_process(key: Callable[[], str]) -> str:
    forget_sources()
    return key()


def test_the_code_of_a_mixtures_parts_counts_and_their_comments_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (ROOT / "tests" / "checking" / "corridor_worlds.py").read_text()
    (tmp_path / "my_corridor.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    parts = {"lake": {"world": "frozen_lake"}, "mine": {"world": "my_corridor:Corridor"}}
    mixture = WorldSection(name="mixture", parameters={"parts": parts})

    def key() -> str:
        return rollout_key(experiment(), mixture)

    before = key()
    (tmp_path / "my_corridor.py").write_text(f"# Walks.\n{source}")
    assert of_new_process(key) == before
    (tmp_path / "my_corridor.py").write_text(source.replace("LENGTH = 5", "LENGTH = 6"))
    assert of_new_process(key) != before


def policy_keys(model: Path) -> tuple[str, str]:
    """Of the tokenizer and of the policy before learning."""
    chosen = experiment(f"policy.model={model}", "warm_start.enabled=false")
    found = pretrained(chosen.policy)
    return (
        cache_key(
            tokenizer, TokenizerParameters(pretrained=found, vocabulary=1, format="react"), demonstrations=NOTHING
        ),
        cache_key(initial_policy, PolicyParameters.of(chosen.policy, found, 100), tokenizer=NOTHING),
    )


def test_weights_from_outside_are_part_of_the_key_and_their_place_is_not(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "chat_template.jinja"):
        (model / name).write_text(name)
    before = policy_keys(model)
    model = model.rename(tmp_path / "renamed")
    assert policy_keys(model) == before == policy_keys(tmp_path / "." / "renamed")
    for path in sorted(model.iterdir()):
        path.write_text("other")
        after = policy_keys(model)
        assert not set(after) & set(before), f"{path.name} must count"
        before = after


def test_conversations_are_part_of_the_key_and_their_place_is_not(tmp_path: Path) -> None:
    def key(path: Path) -> str:
        return cache_key(conversations, ConversationParameters(file=outside_file(path)))

    path = tmp_path / "mine.jsonl"
    path.write_text("{}")
    before = key(path)
    path = path.rename(tmp_path / "yours.jsonl")
    assert key(path) == before
    path.write_text("{} ")
    assert key(path) != before


@pytest.mark.usefixtures("turnwise_home")
def test_the_lineage_says_where_outside_things_lay_so_that_the_stage_can_be_done_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n')
    parameters = ConversationParameters(file=outside_file(path))
    made = conversations.fn(parameters)
    (record,) = default_store().lineage(made).values()
    assert record["parameters"] == {"file": parameters.file.content}
    assert record["called_with"]["file"]["place"] == str(path)
    assert recompute(record) == made
