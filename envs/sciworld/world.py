"""The world: variations as tasks, its parameters, and the simulator's score as the reward.

Differs from AgentGym-RL (arXiv 2509.08755), which plays the same simulator: success is the full score instead of any
score above zero; the splits are the package's, so that no variation is both trained and tested on; a simplification can
be chosen; and a few processes are shared, where AgentGym-RL has one per episode that is never freed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from envs.sciworld.episode import Rules, SciWorldEnvironment
from envs.sciworld.pool import Pool, pool
from envs.sciworld.simulator import CALL_SECONDS, find_java, java_version
from envs.sciworld.variations import COUNTS, PACKAGE_VERSION, Variation, numbers
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, missing_package, positive, whole_number

SHORT = (
    "find-non-living-thing",
    "find-living-thing",
    "find-plant",
    "find-animal",
    "lifespan-longest-lived",
    "lifespan-shortest-lived",
    "chemistry-mix-paint-secondary-color",
    "power-component",
)
"""Types of task that the package's own agent solves in at most 20 actions."""
SIMPLIFICATIONS = {
    "teleportAction": "`teleport to ROOM` takes you to any room.",
    "openDoors": "All doors are open.",
    "openContainers": "All containers are open.",
    "selfWateringFlowerPots": "Flower pots water themselves.",
    "noElectricalAction": "",
}
EASY = "easy"
NOT_IN_AGENTGYM = (
    "grow-plant",
    "grow-fruit",
    "inclined-plane-determine-angle",
    "inclined-plane-friction-named-surfaces",
    "inclined-plane-friction-unnamed-surfaces",
    "mendelian-genetics-known-plant",
    "mendelian-genetics-unknown-plant",
)
ACTIONS = (
    "look around, look at OBJ, look in OBJ, inventory, task, open OBJ, close OBJ, activate OBJ, deactivate OBJ, "
    "pick up OBJ, put down OBJ, move OBJ to OBJ, focus on OBJ, go to LOC, use OBJ on OBJ, pour OBJ in OBJ, "
    "dunk OBJ in OBJ, mix OBJ, read OBJ, eat OBJ, flush OBJ, wait, wait1"
)


class SciWorld(World):
    """Do a science task in a house of ten rooms, by text.

    Parameters: `types`, names of types of task, which provide the tasks of a split in turn; `simplification`, `easy`, a
    list such as `teleportAction,openDoors`, or nothing; `turns`, the turn limit of an episode, one action per turn;
    `processes`, the maximum number of Java processes, of 350 MB each, that the episodes of this Python process share;
    `call_seconds`, after which a call is given up with its process and the episodes in it: that many seconds of wall
    time in which the process hardly worked, or that many of CPU time. A busy machine makes calls slow and loses none.
    Keep `call_seconds` below `rollout.world_seconds`.

    Java must be on the path when an episode is made; a world that is only described needs none.
    """

    name: ClassVar[str] = "sciworld"
    version: ClassVar[str] = f"{PACKAGE_VERSION}-1"
    oracle_success: ClassVar[float] = 0.95
    rewards: ClassVar[Mapping[str, Reward]] = {
        "score": Reward("the change of the score, whose sum is from 0 to 1, or -1 after a failure", "turn", 1.0)
    }
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success", description="episodes that reach the full score"),
        Column("partial credit", "partial_credit", description="the score at the end, a failure counted as 0"),
        Column("failed", "failed", better="lower", description="episodes ended by an action that rules success out"),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agentgym-rl": {
            "types": [type for type in COUNTS if type not in NOT_IN_AGENTGYM],
            "simplification": "",
            "turns": 20,
        },
    }

    def __init__(
        self,
        *,
        types: Sequence[str] = SHORT,
        simplification: str = EASY,
        turns: int = 20,
        processes: int = 2,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        try:
            importlib.import_module("scienceworld")
        except ModuleNotFoundError as error:
            raise missing_package(self.name, str(error.name)) from error
        self.types = _known_types(types)
        self.simplification = _known_simplification(simplification, self.types)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self.processes = whole_number("processes", processes, 1, 64)
        self.call_seconds = positive("call_seconds", call_seconds)
        self._family = f"{self.name}/{self.version}"
        self._simplified = self.simplification or "unsimplified"
        active = self._simplifications()
        self.instruction = " ".join(
            [
                "Do the science task that is given, in a house with rooms, things, plants and animals.",
                "Where the task says to focus on something, focus on the right thing: a wrong focus ends the episode.",
                "Only what is in your room or your inventory can be used. Time passes with every action but looking.",
                *(SIMPLIFICATIONS[name] for name in active if SIMPLIFICATIONS[name]),
            ]
        )
        more = ", teleport to LOC" if "teleportAction" in active else ""
        if "noElectricalAction" not in active:
            more += ", connect OBJ to OBJ, disconnect OBJ"
        self.grammar = f"Actions: {ACTIONS}{more}. A question is answered with a number."

    @cached_property
    def pool(self) -> Pool:
        """The Java processes. None is started before the first episode."""
        return pool(self.processes, self.call_seconds)

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` variations of a split, of each type in turn while it has any.

        The tag `type` names the type.
        """
        variations = list(self._ordered(split))
        if count > len(variations):
            raise ValueError(
                f"count must be at most {len(variations)} for the {split} split of this world with types "
                f"{list(self.types)}; found {count}: ask for fewer tasks, or name more types"
            )
        return [self._task(variation, split) for variation in variations[:count]]

    def split_size(self, split: Split) -> int:
        """Number of variations over all types."""
        return sum(len(numbers(type, split)) for type in self.types)

    def make(self, task: Task, seed: int) -> SciWorldEnvironment:
        """Environment for a task; its randomness is fixed by the variation.

        Raises ValueError for a task of another world, or if there is no Java.
        """
        find_java()
        family, _, name = task.id.rpartition(f"/{self._simplified}/")
        type, _, number = name.rpartition("/")
        if family != self._family or type not in COUNTS or not number.isdigit() or int(number) >= COUNTS[type]:
            raise ValueError(
                f"a task of this world must have an id such as {self._id(Variation('boil', 7))!r}; found {task.id!r}"
            )
        rules = Rules(self.pool, self.simplification, self.grammar)
        return SciWorldEnvironment(rules, task, Variation(type, int(number)))

    def require_programs(self) -> None:
        """Raise ValueError if there is no Java."""
        find_java()

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Version of the Java that the simulator runs on. Raises ValueError if there is none."""
        return {"java": java_version()}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The simulator, and the bridge between Python and Java."""
        return ("py4j", "scienceworld")

    def attribution(self) -> str:
        """The simulator and its licence."""
        return "ScienceWorld by the Allen Institute for AI, Apache-2.0."

    def _simplifications(self) -> tuple[str, ...]:
        """Names of the active simplifications.

        `easy` includes `noElectricalAction` only if no type needs electricity.
        """
        if self.simplification == EASY:
            electrical = any(_is_electrical(type) for type in self.types)
            names = ("teleportAction", "openDoors", "selfWateringFlowerPots")
            return names if electrical else (*names, "noElectricalAction")
        return tuple(self.simplification.split(",")) if self.simplification else ()

    def _ordered(self, split: Split) -> Iterator[Variation]:
        """Variations of each type in turn, shuffled within a type: neighbouring numbers differ only in a detail."""
        shuffled = []
        for type in self.types:
            own = list(numbers(type, split))
            order = seeding.generator(0, "sciworld order", type, split).permutation(len(own))
            shuffled.append([Variation(type, own[place]) for place in order])
        for place in range(max(map(len, shuffled))):
            yield from (own[place] for own in shuffled if place < len(own))

    def _task(self, variation: Variation, split: Split) -> Task:
        name = self._id(variation)
        return Task(self.name, name, split, seeding.derive(0, name), {"type": variation.type})

    def _id(self, variation: Variation) -> str:
        return f"{self._family}/{self._simplified}/{variation.type}/{variation.number}"


def _is_electrical(type: str) -> bool:
    return "power-component" in type or "conductivity" in type


def _known_types(value: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise ValueError(f"types must be a list of different types of task; found {value!r}")
    for type in value:
        if type not in COUNTS:
            raise ValueError(f"types must be of {', '.join(COUNTS)}; found {type!r}")
    return tuple(value)


def _known_simplification(value: str, types: Sequence[str]) -> str:
    """Validated simplification: `easy`, nothing, or names. Raises ValueError.

    An electrical task without electrical actions is refused, because the simulator accepts it although it cannot be
    solved.
    """
    names = value.split(",") if isinstance(value, str) and value not in ("", EASY) else []
    if (
        not isinstance(value, str)
        or len(set(names)) != len(names)
        or any(name not in SIMPLIFICATIONS for name in names)
    ):
        raise ValueError(
            f"simplification must be {EASY!r}, '' or different ones of {', '.join(SIMPLIFICATIONS)}, with commas "
            f"between; found {value!r}"
        )
    if "noElectricalAction" in names and (electrical := [type for type in types if _is_electrical(type)]):
        raise ValueError(f"simplification must not have noElectricalAction with the types {', '.join(electrical)}")
    return value
