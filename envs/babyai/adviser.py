"""The package's bot as an adviser: it plays along in a twin of the episode, so that asking it changes nothing.

The bot plans over what has been in view so far, and must see every action that is played. The twin is the same start,
made from the same seed when the bot is first asked; before each advice the actions that were played since are played
in it. The bot was written for its own plans: after the moves of another player it may contradict itself, want to go
back for ever, or find a box gone that it had counted on. Then a new bot begins where the agent stands, knowing nothing
but what is in view; when that one fails as well, there is no advice.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minigrid.core.actions import Actions
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import ObjDesc
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from envs.babyai.levels import start

MOST_PLANS = 100
"""Subgoals that the bot may set itself before one action; it needs some ten at most, or goes round in circles."""
MOVES = (Actions.left, Actions.right, Actions.forward)

Place = tuple[tuple[int, int], int]
"""A column and a row of the grid, and a direction: 0 right, 1 down, 2 left, 3 up."""


class GoingInCirclesError(Exception):
    """The bot sets itself one subgoal after the other and does not come to an action."""


FAILURES = (AssertionError, DisappearedBoxError, GoingInCirclesError, TypeError)
"""How the bot fails. It states its expectations as assertions, and takes the absence of a place to put a thing for a
place."""


@dataclass(frozen=True)
class Advice:
    """The next action, and the thing that it is about as far as the bot knows: `red ball`, `door`, or nothing."""

    action: Actions
    aim: str


class Adviser:
    """The bot in a twin of one episode."""

    def __init__(self, level: str, seed: int) -> None:
        self._twin = start(level, seed)
        self._bot = _Bot(self._twin)
        self._seen = 0
        self._advice = self._ask(None)

    def advise(self, played: Sequence[Actions]) -> Advice | None:
        """What to do after these actions, all of the episode's so far; None when the bot does not know."""
        for action in played[self._seen :]:
            self._twin.step(action)
            self._advice = self._ask(action)
        self._seen = len(played)
        return self._advice

    def path(self, most: int) -> list[Place]:
        """The places and directions that the bot would pass next, by its moves before any other action."""
        twin, bot = copy.deepcopy((self._twin, self._bot))
        action = self._advice.action if self._advice else Actions.done
        passed: list[Place] = []
        while action in MOVES and len(passed) < most:
            _, _, terminated, truncated, _ = twin.step(action)
            passed.append(place_of(twin))
            action = Actions.done if terminated or truncated else bot.next_action(action)
        return passed

    def _ask(self, played: Actions | None) -> Advice | None:
        action = self._bot.next_action(played)
        if action == Actions.done:
            self._bot = _Bot(self._twin)
            action = self._bot.next_action(None)
        return None if action == Actions.done else Advice(action, self._bot.aim)


def place_of(level: RoomGridLevel) -> Place:
    """Where the agent stands and looks."""
    column, row = level.agent_pos
    return (int(column), int(row)), int(level.agent_dir)


class _Subgoals(list[Any]):
    """The bot's stack of subgoals, which counts how many are set."""

    added = 0

    def append(self, subgoal: Any) -> None:
        self.added += 1
        if self.added > MOST_PLANS:
            raise GoingInCirclesError
        super().append(subgoal)


class _Bot(BabyAIBot):
    """The package's bot, with an end to its planning and a word for what it has in mind."""

    stack: _Subgoals

    def __init__(self, level: RoomGridLevel) -> None:
        super().__init__(level)
        self.stack = _Subgoals(self.stack)

    def next_action(self, played: Actions | None) -> Actions:
        """What to do after an action was played; `done` when the bot believes that all is done, or has failed."""
        self.stack.added = 0
        try:
            return Actions(self.replan(played))
        except FAILURES:
            return Actions.done

    @property
    def aim(self) -> str:
        """What the subgoal is about that was set last, of those that are about a thing."""
        for subgoal in reversed(self.stack):
            if isinstance(subgoal.datum, ObjDesc | WorldObj):
                return f"{subgoal.datum.color or ''} {subgoal.datum.type or 'object'}".strip()
        return ""
