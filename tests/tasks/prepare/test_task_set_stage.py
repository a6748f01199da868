"""The stage `task_set`: the ordered task set of one split."""

from __future__ import annotations

import json

import pytest
from corridor_worlds import Corridor

from tasks.prepare.materials import task_set
from turnwise.config.schema import WorldSection
from turnwise.data.task_sets import read_task_set, task_set_digest
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import TaskSetParameters
from turnwise.world import SPLITS, Split, Task, make_world

pytestmark = pytest.mark.usefixtures("turnwise_home")

LAKE = WorldSection(name="frozen_lake", parameters={"size": 3})


class Few(Corridor):
    """A corridor with four tasks in each split."""

    def tasks(self, split: Split, count: int) -> list[Task]:
        if count > 4:
            raise ValueError(f"{split} has 4 tasks; {count} were asked for")
        return super().tasks(split, count)


def made(world: WorldSection = LAKE, split: Split = "train", tasks: int = 5) -> Reference:
    return task_set.fn(TaskSetParameters(world=world, split=split, tasks=tasks))


def tasks_in(reference: Reference, split: Split = "train") -> list[Task]:
    return read_task_set(default_store().folder(reference), split)


def test_the_tasks_are_those_of_the_world_in_its_order_with_what_they_are_of() -> None:
    reference, world = made(split="test"), make_world("frozen_lake", {"size": 3})
    assert tasks_in(reference, "test") == world.tasks("test", 5)
    assert default_store().metrics(reference) == {"tasks": 5}
    about = json.loads((default_store().folder(reference) / "about.json").read_text())
    assert about == {
        "split": "test",
        "digest": task_set_digest(world.tasks("test", 5)),
        "world": "frozen_lake",
        "version": world.version,
        "attribution": world.attribution(),
    }


def test_a_smaller_set_begins_a_larger_one_and_splits_share_no_task() -> None:
    assert tasks_in(made(tasks=2)) == tasks_in(made(tasks=5))[:2]
    ids = [task.id for split in SPLITS for task in tasks_in(made(split=split), split)]
    assert len(set(ids)) == 15


def test_the_same_parameters_give_the_same_artifact() -> None:
    assert made() == made()
    assert len({made().digest, made(tasks=4).digest, made(split="test").digest}) == 3


def test_more_tasks_than_there_are_cannot_be_drawn() -> None:
    few = WorldSection(name=f"{__name__}:Few", parameters={})
    assert len(tasks_in(made(few, tasks=4))) == 4
    with pytest.raises(ConfigurationError, match=r"data\.train_tasks.*\b4\b.*\b5\b.*TW-too-few-tasks"):
        made(few, tasks=5)


def test_a_task_set_may_mix_worlds_and_remembers_which() -> None:
    parts = {"lake": {"world": "frozen_lake"}, "bandit": {}}
    world = WorldSection(name="envs.mixture:Mixture", parameters={"parts": parts, "train": ["lake"]})
    train, test = (made(world, split, 3) for split in SPLITS[::2])
    assert [task.tags["world"] for task in tasks_in(train)] == ["lake"] * 3
    assert [task.tags["world"] for task in tasks_in(test, "test")] == ["lake", "bandit", "lake"]
