"""What is prepared of a world, without Prefect: the functions of the stages."""

import pytest

from tasks.prepare.materials import DemonstrationParameters, PanelParameters, demonstrations, panel
from turnwise.config.agent import Agent
from turnwise.config.schema import RetryOptions, WorldSection
from turnwise.data.task_sets import read_panel
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store
from turnwise.world import SPLITS, Split

AGENT = Agent(format="think-answer", instruction=False, maximum_reply_tokens=32, context_tokens=256)
PATIENCE = RetryOptions(world_seconds=30.0, world_retries=0, maximum_lost_share=0.0, world_delay=0)


def made_panel(world: WorldSection, split: Split = "train", tasks: int = 3) -> Reference:
    return panel.function(PanelParameters(world=world, split=split, tasks=tasks))


def demonstrated(world: WorldSection, count: int) -> list[Trajectory]:
    parameters = DemonstrationParameters(world=world, agent=AGENT, patience=PATIENCE, seed=0, count=count, noise=0.0)
    return read_trajectories(default_store().folder(demonstrations.function(parameters, panel=made_panel(world))))


@pytest.mark.usefixtures("turnwise_home")
def test_demonstrations_go_round_the_training_tasks() -> None:
    world = WorldSection(name="bandit", preset="ragen", parameters={})
    played = demonstrated(world, 5)
    names = [task.id for task in read_panel(default_store().folder(made_panel(world)), "train")]
    assert [each.task.id for each in played] == [*names, *names[:2]]
    assert all(each.success for each in played)


@pytest.mark.usefixtures("turnwise_home")
def test_a_world_without_an_oracle_has_no_demonstrations() -> None:
    assert demonstrated(WorldSection(name="gymnasium", preset="blackjack", parameters={}), 5) == []


@pytest.mark.usefixtures("turnwise_home")
def test_a_panel_may_mix_worlds_and_remembers_which() -> None:
    parts = {"lake": {"world": "frozen_lake"}, "bandit": {}}
    world = WorldSection(name="envs.mixture:Mixture", parameters={"parts": parts, "train": ["lake"]})
    train, test = (default_store().folder(made_panel(world, split)) for split in SPLITS[::2])
    assert [task.tags["world"] for task in read_panel(train, "train")] == ["lake"] * 3
    assert [task.tags["world"] for task in read_panel(test, "test")] == ["lake", "bandit", "lake"]
    assert {each.task.tags["world"] for each in demonstrated(world, 4)} == {"lake"}
