"""The world: starts of BabyAI's levels as tasks, with its parameters and reward.

Differs from AgentGym's BabyAI (arXiv 2406.04151): the reward is given once; every offered action is accepted; of its
actions that walk by themselves only `go to` exists here, and without numbers: it leads to the nearest object of a name;
validation and test starts are never training starts; levels that the package's bot does not master are refused, so
that every playable level has an oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from envs.babyai.episode import LEGAL, LevelEnvironment
from envs.babyai.levels import REFUSED, playable, seed_of_split
from turnwise import seeding
from turnwise.world import Limits, Reward, Split, Task, World, true_or_false, whole_number

SMALL = ("GoToRedBallNoDists", "GoToObj", "GoToLocal", "PickupLoc", "OpenDoor")
AGENTGYM = (
    "GoToRedBallGrey",
    "GoToRedBall",
    "GoToRedBallNoDists",
    "GoToObjS6",
    "GoToLocalS8N7",
    "GoToObjMazeS7",
    "GoToSeqS5R2",
    "GoToRedBlueBall",
    "GoToDoor",
    "GoToObjDoor",
    "Open",
    "OpenRedDoor",
    "OpenDoorLoc",
    "OpenRedBlueDoorsDebug",
    "Pickup",
    "UnblockPickup",
    "PickupLoc",
    "PickupDistDebug",
    "PickupAbove",
    "PutNextLocalS6N4",
    "Unlock",
    "UnlockLocalDist",
    "UnlockPickupDist",
    "BlockedUnlockPickup",
    "ActionObjDoor",
    "FindObjS7",
    "KeyCorridorS6R3",
    "OneRoomS20",
    "MoveTwoAcrossS8N9",
    "SynthS5R2",
    "SynthLoc",
    "SynthSeq",
    "MiniBossLevel",
    "BossLevel",
    "BossLevelNoUnlock",
)
"""AgentGym's forty levels, without the five that are refused here."""


class BabyAI(World):
    """Follow a mission in rooms of which only the part in front of the agent is visible.

    Parameters: `levels`, names of BabyAI levels such as `GoToLocal`, from which tasks are drawn in turn; `turns`, the
    turn limit of an episode, one action per turn; `go_to`, whether there is an action that walks up to an object in
    view.

    A task is a start of a level. Nothing in an episode is random. Each level has its own limit on steps, set by its
    size, which truncates the episode; every step of a walk by `go to` counts towards it and towards the reward.
    """

    name: ClassVar[str] = "babyai"
    version: ClassVar[str] = "1"
    oracle_success: ClassVar[float] = 0.99
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "agentgym": {"levels": list(AGENTGYM), "turns": 20, "go_to": True},
        "one-room": {"levels": ["GoToRedBallNoDists"], "turns": 16},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {
        "mission": Reward(
            "1 - 0.9 x steps / the level's limit on steps, once, when the mission is accomplished", "outcome", 1.0
        )
    }
    instruction = (
        "Do what the mission says. You stand in a room and see what is in front of you, up to 6 cells forward and "
        "3 to each side, but not through walls and closed doors. Places are told from where you stand and look: "
        "'a red ball 2 left 3 forward' is 3 cells ahead of you and 2 to the left. To go to a thing means to stand "
        "beside it and face it."
    )

    def __init__(self, *, levels: Sequence[str] = SMALL, turns: int = 20, go_to: bool = False) -> None:
        self.levels = _levels(levels)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 2000))
        self.go_to = true_or_false("go_to", go_to)
        self._family = f"{self.name}/{self.version}/"
        walk = (
            " go to COLOR THING, or go to THING, walks up to the nearest such thing in view, if a way to it is in view."
        )
        self.grammar = (
            f"{LEGAL}. The last three are about the cell right in front of you: pick up takes the thing there, drop "
            f"puts down what you carry, toggle opens or closes a door or opens a box.{walk if self.go_to else ''}"
        )

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` starts of a split, which is unbounded; the levels take turns.

        The tag `level` names the level.
        """
        return [
            self._task(self.levels[number % len(self.levels)], split, number // len(self.levels))
            for number in range(count)
        ]

    def make(self, task: Task, seed: int) -> LevelEnvironment:
        """Environment at the task's start; `seed` has no effect. Raises ValueError for a task of another world.

        The start is searched for here: one or two draws of the level for a training task, about ten for another split.
        """
        level = task.id.removeprefix(self._family).split("/")[0]
        if not task.id.startswith(self._family) or level not in playable():
            raise ValueError(f"a task must be named {self._family}LEVEL/SPLIT/NUMBER; found {task.id!r}")
        return LevelEnvironment(level, seed_of_split(level, task.split, task.seed), go_to=self.go_to)

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Distributions whose versions count: the levels with their bot (minigrid), and Gymnasium, which makes them."""
        return ("gymnasium", "minigrid")

    def attribution(self) -> str:
        """The package and its licence."""
        return "Levels of BabyAI from the package minigrid 3.2.0 (Farama Foundation), MIT licence."

    def _task(self, level: str, split: Split, number: int) -> Task:
        name = f"{self._family}{level}/{split}/{number}"
        return Task(self.name, name, split, seeding.derive(0, name), {"level": level})


def _levels(value: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise ValueError(f"levels must be a list of different names of BabyAI levels; found {value!r}")
    for level in value:
        if level in REFUSED:
            raise ValueError(f"levels must be ones that can be mastered; found {level!r}: {REFUSED[level]}")
        if level not in playable():
            raise ValueError(f"levels must be of {', '.join(playable())}; found {level!r}")
    return tuple(value)
