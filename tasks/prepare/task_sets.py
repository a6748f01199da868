"""Task sets: the tasks of a split, drawn from the world."""

from __future__ import annotations

from turnwise.config.schema import Section, WorldSection
from turnwise.errors import ConfigurationError
from turnwise.world import Split, Task, make_world


class TaskSetParameters(Section):
    """The parameters of the task set of one split."""

    world: WorldSection
    split: Split
    tasks: int


def draw_task_set(parameters: TaskSetParameters) -> list[Task]:
    """Draw the tasks of a split. Raises ConfigurationError when it has fewer."""
    try:
        world = make_world(parameters.world.name, parameters.world.parameters)
        return world.tasks(parameters.split, parameters.tasks)
    except ValueError as error:
        raise ConfigurationError(f"data.{parameters.split}_tasks: {error}") from error
