"""Episodes of ScienceWorld that several test files open."""

from envs.sciworld import SciWorld, pool
from envs.sciworld.episode import SciWorldEnvironment
from envs.sciworld.variations import Variation
from turnwise.world import Task


def end_java() -> None:
    """End every simulator of this process; the next episode starts one."""
    for each in list(pool._pools.values()):
        each.end()


def task_of(world: SciWorld, variation: Variation) -> Task:
    """The task of a variation, whatever its split."""
    return world._task(variation, "train")


def opened(world: SciWorld, type: str, number: int = 0) -> SciWorldEnvironment:
    environment = world.make(task_of(world, Variation(type, number)), 0)
    environment.reset()
    return environment
