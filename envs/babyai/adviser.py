"""The package's bot as an adviser: it plays along in a copy of the episode, so asking it leaves the episode unchanged.

The bot plans over what has been in view so far and must see every action that is played. The copy, called the twin, has
the same start, made from the same seed; it is created when the bot is first asked, and before each advice the actions
played since are replayed in it. The bot was written to follow its own plans: after another policy's moves it may
contradict itself, loop for ever, or find a box gone that it relied on. Then a new bot starts from the agent's current
position, knowing only what is in view; when that one fails as well, there is no advice.
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
"""Limit on subgoals that the bot may set before one action; it needs at most about ten unless it loops."""
MOVES = (Actions.left, Actions.right, Actions.forward)

Place = tuple[tuple[int, int], int]
"""A column and a row of the grid, and a direction: 0 right, 1 down, 2 left, 3 up."""


class GoingInCirclesError(Exception):
    """Raised when the bot keeps setting subgoals without reaching an action."""


FAILURES = (AssertionError, DisappearedBoxError, GoingInCirclesError, TypeError)
"""Exceptions by which the bot fails.

It states its expectations as assertions, and when it finds no place to put an
object it uses that missing place as if it were one.
"""


@dataclass(frozen=True)
class Advice:
    """The next action and its target as far as the bot knows: `red ball`, `door`, or empty."""

    action: Actions
    aim: str


class Adviser:
    """The bot in a copy (twin) of one episode."""

    def __init__(self, level: str, seed: int) -> None:
        self._twin = start(level, seed)
        self._bot = _Bot(self._twin)
        self._steps_replayed = 0
        self._advice = self._ask(None)

    def advise(self, actions: Sequence[Actions]) -> Advice | None:
        """Advice after `actions`, which holds all actions of the episode so far; None when the bot does not know."""
        for action in actions[self._steps_replayed :]:
            self._twin.step(action)
            self._advice = self._ask(action)
        self._steps_replayed = len(actions)
        return self._advice

    def path(self, most: int) -> list[Place]:
        """Positions and directions that the bot's next moves pass: at most `most`, up to its first other action."""
        twin, bot = copy.deepcopy((self._twin, self._bot))
        action = self._advice.action if self._advice else Actions.done
        places: list[Place] = []
        while action in MOVES and len(places) < most:
            _, _, terminated, truncated, _ = twin.step(action)
            places.append(place_of(twin))
            action = Actions.done if terminated or truncated else bot.next_action(action)
        return places

    def _ask(self, last_action: Actions | None) -> Advice | None:
        action = self._bot.next_action(last_action)
        if action == Actions.done:
            self._bot = _Bot(self._twin)
            action = self._bot.next_action(None)
        return None if action == Actions.done else Advice(action, self._bot.aim)


def place_of(level: RoomGridLevel) -> Place:
    """Position and direction of the agent."""
    column, row = level.agent_pos
    return (int(column), int(row)), int(level.agent_dir)


class _Subgoals(list[Any]):
    """The bot's stack of subgoals, which counts how many are set and stops at `MOST_PLANS`."""

    additions = 0

    def append(self, subgoal: Any) -> None:
        self.additions += 1
        if self.additions > MOST_PLANS:
            raise GoingInCirclesError
        super().append(subgoal)


class _Bot(BabyAIBot):
    """The package's bot with a limit on its planning and a name for its current target."""

    stack: _Subgoals

    def __init__(self, level: RoomGridLevel) -> None:
        super().__init__(level)
        self.stack = _Subgoals(self.stack)

    def next_action(self, last_action: Actions | None) -> Actions:
        """Next action after `last_action`; `done` when the bot takes the mission for accomplished, or has failed."""
        self.stack.additions = 0
        try:
            return Actions(self.replan(last_action))
        except FAILURES:
            return Actions.done

    @property
    def aim(self) -> str:
        """Target of the most recent subgoal that concerns an object, such as `red ball`; empty when there is none."""
        for subgoal in reversed(self.stack):
            if isinstance(subgoal.datum, ObjDesc | WorldObj):
                return f"{subgoal.datum.color or ''} {subgoal.datum.type or 'object'}".strip()
        return ""
