"""The world: goals as tasks, its parameters and its reward.

Differs from AgentGym's TextCraft (arXiv 2406.04151): one recipe per item instead of alternatives and tags, so the list
holds everything that can be done; a recipe can be used several times at once; more than one of a goal may be wanted;
task ids and distractors depend on neither the order of a directory nor a hash seed; validation and test goals are never
training goals; and the recipes are those of the package `minecraft-data`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from envs.textcraft.commands import LEGAL
from envs.textcraft.episode import CraftingEnvironment
from envs.textcraft.problems import DEPTHS, VERSION, find, goals, problems
from envs.textcraft.recipes import GAME_VERSION, depth
from turnwise.world import Column, Limits, Reward, Split, Task, World, whole_number, whole_numbers


class TextCraft(World):
    """Craft a Minecraft item: take raw items, and use the listed recipes in the right order and the right amounts.

    Parameters: `depths`, the lengths of the goal's longest chain of crafts, 1 to 4, from which goals are drawn;
    `distractors`, the listed recipes that the goal does not need (0 to 50); `wanted`, the maximum number wanted of the
    goal (1 to 16; each task draws its number from 1 up to it); `turns`, the turn limit of an episode, one command per
    turn.

    There are 652 goals: 170, 251, 193 and 38 of the depths 1 to 4. A split has every one of its goals once before any
    repeats with other distractors. Nothing in an episode is random.
    """

    name: ClassVar[str] = "textcraft"
    version: ClassVar[str] = VERSION
    blocks = False
    oracle_success: ClassVar[float] = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agentgym": {"depths": [1, 2, 3, 4], "distractors": 10, "turns": 20},
        "compact": {"depths": [1, 2], "distractors": 2, "turns": 8},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {
        "goal": Reward("1 when the goal is in the inventory as often as wanted", "outcome", 1.0)
    }
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success", description="episodes whose goal was made"),
        Column(
            "depth reached",
            "depth_reached",
            percent=False,
            description="crafts on end, of the longest chain towards the goal, that were done",
        ),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )
    instruction = (
        "Make the goal. Each recipe says what it makes and, after the word using, what it uses up. An item that no "
        "recipe makes can be taken with get, as many as you like; all others must be crafted. To use a recipe "
        "several times at once, multiply all its numbers. Some recipes are of no use."
    )
    grammar = f"{LEGAL} (N is a number)."

    def __init__(
        self, *, depths: Sequence[int] = DEPTHS, distractors: int = 10, wanted: int = 1, turns: int = 20
    ) -> None:
        self.depths = whole_numbers("depths", depths, 1, 4)
        self.distractors = whole_number("distractors", distractors, 0, 50)
        self.wanted = whole_number("wanted", wanted, 1, 16)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, which is unbounded.

        The tag `depth` is the longest chain of crafts from raw items to the goal.
        """
        return [
            Task(self.name, problem.id, split, problem.seed, {"depth": depth(problem.goal)})
            for problem in islice(problems(split, self.depths, self.wanted), count)
        ]

    def withheld_names(self) -> frozenset[str]:
        """The items that are no goal of a training task."""
        return frozenset((*goals("validation", DEPTHS), *goals("test", DEPTHS)))

    def make(self, task: Task, seed: int) -> CraftingEnvironment:
        """Environment for a task; `seed` has no effect. Raises ValueError for a task of another world."""
        problem = find(task.id)
        return CraftingEnvironment(problem, problem.recipe_list(self.distractors))

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The package with the recipes."""
        return ("minecraft-data",)

    def attribution(self) -> str:
        """The package and its licence."""
        return (
            f"Recipes of Minecraft {GAME_VERSION} from the package minecraft-data 3.20.0 (PrismarineJS, N. Vito "
            "Gamberini and contributors), MIT licence."
        )
