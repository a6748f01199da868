"""The registry, presets, and what the configuration refuses of a world."""

import re
from pathlib import Path

import pytest

from envs.frozen_lake import FrozenLake
from turnwise.config.overlays import read_yaml
from turnwise.config.schema import WorldSection
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build, load
from turnwise.world import Task, make_world, with_preset, world_class

ROOT = Path(__file__).parents[1]
LAKE = ROOT / "experiments" / "frozen_lake.yaml"
BLACKJACK = {"name": "gymnasium", "preset": "blackjack", "parameters": {}}


def blackjack(**settings: object) -> Experiment:
    rewards = {"reward": {"level": "outcome", "weight": 1.0}}
    given = {"world": BLACKJACK, "rewards": rewards, **{key.replace("__", "."): each for key, each in settings.items()}}
    return load(ROOT / "params.yaml", [LAKE], given)


def test_a_world_that_lacks_a_method_is_told_which() -> None:
    with pytest.raises(ConfigurationError, match=r"can be made; .*World'> lacks make, tasks.*TW-plugin-kind"):
        world_class("turnwise.world:World")


# Presets


def test_parameters_are_laid_over_a_preset() -> None:
    preset = FrozenLake.presets["ragen-v2"]
    assert with_preset("frozen_lake", "ragen-v2", {}) == preset
    assert with_preset("frozen_lake", "ragen-v2", {"turns": 3, "size": 6}) == {**preset, "turns": 3, "size": 6}
    assert with_preset("frozen_lake", "", {"turns": 3}) == {"turns": 3}
    # The class's own mapping is not handed out.
    with_preset("frozen_lake", "ragen-v2", {})["turns"] = 99
    assert FrozenLake.presets["ragen-v2"] == preset and preset["turns"] == 5


@pytest.mark.parametrize(
    ("world", "preset", "message"),
    [
        ("frozen_lake", "ragen-v3", "the world 'frozen_lake' has no preset 'ragen-v3': did you mean 'ragen-v2'?"),
        ("frozen_lake", "mine", "has no preset 'mine': it has ragen-v1, ragen-v2, ragen-v2-no-slip"),
        ("search", "ragen", "the world 'search' has no preset 'ragen': it has none"),
        ("frozen", "ragen", "world must be one of"),
    ],
)
def test_an_unknown_preset_is_refused_with_the_nearest(world: str, preset: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        with_preset(world, preset, {})


def test_the_configuration_holds_the_parameters_of_the_preset() -> None:
    experiment = load(
        ROOT / "params.yaml", [LAKE], {"world": {"name": "frozen_lake", "preset": "ragen-v1", "parameters": {}}}
    )
    assert experiment.world.parameters == FrozenLake.presets["ragen-v1"]
    assert experiment.made_world.limits == FrozenLake(**FrozenLake.presets["ragen-v1"]).limits
    changed = load(
        ROOT / "params.yaml", [LAKE], {"world.preset": "ragen-v1", "world.parameters": {"turns": 9}}
    ).world.parameters
    assert changed == {**FrozenLake.presets["ragen-v1"], "turns": 9}


def test_a_configuration_that_is_read_again_is_the_same() -> None:
    section = WorldSection(name="frozen_lake", preset="ragen-v1", parameters={"turns": 9})
    assert WorldSection(**section.model_dump()) == section
    experiment = load(ROOT / "params.yaml", [LAKE], {"world.preset": "ragen-v1"})
    assert build(experiment.model_dump(mode="json")) == experiment


def test_the_configuration_refuses_an_unknown_preset_by_its_key() -> None:
    with pytest.raises(ConfigurationError, match=r"world\.preset.*'ragen-v2'\?.*TW-unknown-preset"):
        load(ROOT / "params.yaml", [LAKE], {"world.preset": "ragen-v3"})


def test_without_a_preset_nothing_changes() -> None:
    experiment = load(ROOT / "params.yaml")
    assert experiment.world.preset == ""
    assert experiment.world.parameters == read_yaml(ROOT / "params.yaml")["world"]["parameters"]


# Worlds without an oracle


def test_demonstrations_of_a_world_without_an_oracle_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'gymnasium'.*TW-no-oracle") as told:
        blackjack()
    assert "warm_start.enabled: true and policy.model: scratch" in str(told.value)
    with pytest.raises(ConfigurationError, match=r"warm_start\.enabled.*policy\.model.*TW-no-oracle"):
        blackjack(warm_start__enabled=False)
    with pytest.raises(ConfigurationError, match=r"warm_start\.enabled.*policy\.model.*models/mine.*TW-no-oracle"):
        blackjack(policy__model="models/mine")


def test_a_policy_that_is_loaded_and_not_warmed_up_may_play_a_world_without_an_oracle() -> None:
    experiment = blackjack(warm_start__enabled=False, policy__model="models/mine")
    assert experiment.made_world.baselines == ("random",)


# What a world need not say


def test_limits_hold_for_every_task_and_splits_have_no_end_unless_a_world_says_otherwise() -> None:
    world = make_world("frozen_lake", {"turns": 3})
    task = Task(world.name, "any", "train", 0)
    assert world.limits_of(task) == world.limits
    assert world.split_size("train") is None
    assert FrozenLake.modules({}) == ("envs.frozen_lake.lake",)


def test_a_world_without_a_grammar_is_refused_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FrozenLake, "grammar")
    with pytest.raises(ConfigurationError, match=r"'frozen_lake' must have.*it has no grammar.*TW-plugin-kind"):
        make_world("frozen_lake", {})


# The page


def test_the_configurations_on_the_page_of_worlds_are_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "worlds.md").read_text()
    lake, mixture = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "lake.yaml").write_text(lake)
    (tmp_path / "mixture.yaml").write_text(mixture.replace("name: mixture", "name: envs.mixture:Mixture"))
    single = load(ROOT / "params.yaml", [LAKE, tmp_path / "lake.yaml"])
    assert single.world.parameters == {**FrozenLake.presets["ragen-v2"], "turns": 8}
    mixed = load(ROOT / "params.yaml", [LAKE, tmp_path / "mixture.yaml"]).made_world
    assert [task.tags["world"] for task in mixed.tasks("train", 6)] == ["lake", "textcraft", "lake"] * 2
    assert {task.tags["world"] for task in mixed.tasks("test", 4)} == {"lake", "textcraft", "bandit"}
