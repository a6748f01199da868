"""The world: boards as tasks, Gymnasium's lake as environment, and its two baseline policies.

Differs from RAGEN (arXiv 2504.20073): validation and test boards are never training boards; the agent applies the
penalty for an invalid turn, since only the agent sees the reply; the oracle plans under the limits on turns and actions
and, like the policy, sees no observation between the actions of one turn.

The best policy solves 47% to 50% of the boards at RAGEN's first setting, depending on the number of actions per turn,
and 94.7% at its second, which has the larger share of ice; with the smaller share that would be 89%.

A position is shown as a grid of symbols, or as the coordinates of everything, as RAGEN-2 shows it. Both show the same
boards, so that a test can tell whether a policy learned the game or the look of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from envs.frozen_lake.boards import GOAL, HOLE, LakeBoard, draw_board
from envs.frozen_lake.planner import LONGEST_SEQUENCE, make_lake, plan
from turnwise import seeding
from turnwise.world import (
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    one_of,
    require_family,
    share,
    whole_number,
)

ACTIONS = ("Left", "Down", "Right", "Up")
"""In Gymnasium's order."""
LEGAL = "Left, Down, Right or Up"
VIEWS = ("grid", "coordinates")
MEANINGS = ("you", "ice", "hole", "goal", "you in a hole", "you on the goal")
"""Meanings of the six symbols of a grid, in order."""


class FrozenLake(World):
    """Walk over the ice to the goal without falling into a hole; at a success rate below 1 the ice is slippery.

    Parameters: `size`, cells along one side (3 to 12); `frozen`, the share of ice among the other cells, in (0, 1];
    `success_rate`, the probability that an action leads where it points, else to either side with equal probability
    (1: no slip; 1/3: Gymnasium's default); `turns`, `actions_per_turn` and `actions`, the limits of an episode;
    `view`, "grid" or "coordinates"; `symbols`, six characters for the agent, ice, hole, goal, the agent in a hole and
    the agent on the goal, for the grid.

    A task fixes a board, no slip and no view: results at different success rates and views are on the same boards.
    """

    name: ClassVar[str] = "frozen_lake"
    version: ClassVar[str] = "1"
    blocks = False
    oracle_success: ClassVar[float] = 1.0
    """No shortest path on 4 x 4 cells is longer than 10 actions, so the default limits suffice for every board."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ragen-v1": {"frozen": 0.8, "success_rate": 1 / 3, "turns": 5, "actions_per_turn": 5, "actions": 10},
        "ragen-v2": {"frozen": 0.9, "success_rate": 0.8, "turns": 5, "actions_per_turn": 2, "actions": 10},
        "ragen-v2-no-slip": {"frozen": 0.9, "success_rate": 1.0, "turns": 5, "actions_per_turn": 2, "actions": 10},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {"goal": Reward("1 on reaching the goal", "outcome", 1.0)}
    grammar = f"{LEGAL}."

    def __init__(
        self,
        *,
        size: int = 4,
        frozen: float = 0.8,
        success_rate: float = 1.0,
        turns: int = 5,
        actions_per_turn: int = 2,
        actions: int = 10,
        symbols: str = "P_OGX√",
        view: str = "grid",
    ) -> None:
        self.size = whole_number("size", size, 3, 12)
        self.frozen = share("frozen", frozen, above_zero=True)
        self.success_rate = share("success_rate", success_rate, above_zero=True)
        self.limits = Limits(
            turns=whole_number("turns", turns, 1, 1000),
            actions_per_turn=whole_number("actions_per_turn", actions_per_turn, 1, LONGEST_SEQUENCE),
            actions=whole_number("actions", actions, 1, 1000),
        )
        self.symbols = _six_symbols(symbols)
        self.view = one_of("view", view, VIEWS)
        self._family = f"{self.name}/{self.version}/{self.size}x{self.size}-p{self.frozen}/"
        aim = "Walk over the ice to the goal."
        if self.success_rate < 1:
            aim += f" The ice is slippery: {self.success_rate:.0%} of moves go as meant, the others to a side."
        self.instruction = f"{aim} {legend(self.view, self.symbols)}"

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` boards of a split, which is unbounded.

        The tag `distance` is the shortest path in actions.
        """
        return [self._task(split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> LakeEnvironment:
        """Environment on the task's board; `seed` drives the slip. Raises ValueError for a task of another world."""
        require_family(task, self._family)
        return LakeEnvironment(self, task, self._board(task.seed, task.split), seed)

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Gymnasium, whose lake is played here in words."""
        return ("gymnasium",)

    def _task(self, split: Split, number: int) -> Task:
        name = f"{self._family}{split}/{number}"
        seed = seeding.derive(0, name)
        return Task(self.name, name, split, seed, {"distance": self._board(seed, split).distance or 0})

    def _board(self, seed: int, split: Split) -> LakeBoard:
        return draw_board(seed, split, self.size, self.frozen)


class LakeEnvironment(Environment):
    """One episode on one board. It enforces no limit itself: Gymnasium's own limit of 100 steps is switched off."""

    def __init__(self, world: FrozenLake, task: Task, board: LakeBoard, seed: int) -> None:
        self._world = world
        self._board = board
        self._seed = seeding.derive(seed, "frozen_lake slip", task.id)
        self._lake = make_lake(board, world.success_rate)
        self._cell = board.start

    def reset(self) -> Observation:
        """The board with the agent at the start."""
        self._cell, _ = self._lake.reset(seed=self._seed)
        return self._observe()

    def step(self, action: str) -> Step:
        """Play one of the four actions, in any case; other text changes nothing."""
        name = action.strip().capitalize()
        if name not in ACTIONS:
            refusal = self._observe(f"Not an action. Legal: {LEGAL}.\n")
            return Step(refusal, terminated=self._ended, valid=False, effective=False, success=self._arrived)
        before = self._cell
        self._cell, reward, terminated, _, _ = self._lake.step(ACTIONS.index(name))
        rewards = {"goal": float(reward)} if terminated else {}
        effective = self._cell != before
        return Step(self._observe(), rewards, terminated, effective=effective, success=self._arrived)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The sequence with the highest probability of reaching the goal under the remaining limits: see `planner`.

        When the goal is out of reach, the oracle walks towards it as if just enough actions were left.
        """
        limits = self._world.limits
        per_turn = min(remaining.actions_per_turn, LONGEST_SEQUENCE)
        turns, actions = remaining.turns, min(remaining.actions, remaining.turns * per_turn)
        distance = self._board.distances[self._cell] or 0
        if distance > actions:
            turns, actions = max(turns, -(-distance // per_turn)), distance
        most_turns, most_actions = max(turns, limits.turns), max(actions, limits.actions or actions)
        best_plan = plan(self._board, self._world.success_rate, most_turns, per_turn, most_actions)
        sequence = best_plan.sequence(self._cell, turns, actions)[: remaining.actions]
        return ScriptedAction(self._thought(), tuple(ACTIONS[action] for action in sequence))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """As many actions as the turn allows, each uniform over the four: the whole budget is used, as RAGEN's is."""
        count = min(remaining.actions_per_turn, remaining.actions)
        return ScriptedAction("a random move", tuple(ACTIONS[action] for action in generator.integers(4, size=count)))

    @property
    def _arrived(self) -> bool:
        return self._board.cells[self._cell] == GOAL

    @property
    def _ended(self) -> bool:
        return self._board.cells[self._cell] in (GOAL, HOLE)

    def _observe(self, preface: str = "") -> Observation:
        rows = grid(self._board, self._cell, self._world.symbols)
        # Spaces make every cell a separate token.
        text = "\n".join(" ".join(row) for row in rows)
        if self._world.view == "coordinates":
            text = coordinates(self._board, self._cell)
        return Observation(preface + text, state="/".join("".join(row) for row in rows))

    def _thought(self) -> str:
        """Where the goal is relative to the agent, and on which sides there are holes."""
        down, right = (
            there - here
            for there, here in zip(
                divmod(self._board.goal, self._board.size), divmod(self._cell, self._board.size), strict=True
            )
        )
        parts = ["goal is"]
        if right:
            parts.append(f"right {right}" if right > 0 else f"left {-right}")
        if down:
            parts.append(f"down {down}" if down > 0 else f"up {-down}")
        neighbours = [self._board.neighbour(self._cell, action) for action in range(len(ACTIONS))]
        sides = zip(ACTIONS, neighbours, strict=True)
        holes = [side.lower() for side, neighbour in sides if self._board.cells[neighbour] == HOLE]
        return " ".join(parts) + (f", hole {' '.join(holes)}" if holes else "")


def _six_symbols(value: str) -> tuple[str, ...]:
    if not isinstance(value, str) or len(value) != 6 or len(set(value)) != 6 or " " in value or not value.isprintable():
        raise ValueError(f"symbols must be six different visible characters, such as 'P_OGX√'; found {value!r}")
    return tuple(value)


def legend(view: str, symbols: tuple[str, ...]) -> str:
    """How to read the view, in one sentence."""
    if view == "grid":
        return ", ".join(f"{symbol} {meaning}" for symbol, meaning in zip(symbols, MEANINGS, strict=True)) + "."
    return (
        "Every place is a row, counted from 0 downwards, and a column, counted from 0 to the right; "
        "all that is not a hole or the goal is ice."
    )


def grid(board: LakeBoard, cell: int, symbols: tuple[str, ...]) -> list[list[str]]:
    """The symbols of every row, with the agent at `cell`."""
    player, ice, hole, goal, fallen, arrived = symbols
    letters = [{GOAL: goal, HOLE: hole}.get(letter, ice) for letter in board.cells]
    letters[cell] = {GOAL: arrived, HOLE: fallen}.get(board.cells[cell], player)
    return [letters[first : first + board.size] for first in range(0, board.size**2, board.size)]


def coordinates(board: LakeBoard, cell: int) -> str:
    """One line for the agent, the goal and the holes, and one more where the agent is in a hole or on the goal."""
    holes = [place for place, letter in enumerate(board.cells) if letter == HOLE]
    places = {"you": [cell], "goal": [board.goal], "hole": holes}
    lines = [
        f"{name} {', '.join('{} {}'.format(*divmod(place, board.size)) for place in cells)}"
        for name, cells in places.items()
        if cells
    ]
    state = {GOAL: ["you are on the goal"], HOLE: ["you are in a hole"]}.get(board.cells[cell], [])
    return "\n".join([*lines, *state])
