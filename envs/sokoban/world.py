"""The world: boards as tasks, pushes as actions, and its two baseline policies.

The rewards are RAGEN's and gym-sokoban's: -0.1 for every action, also a blocked one; +1 for a box that moves onto a
target and -1 for one that leaves it; +10 when all are on targets, which ends the episode. No box starts on a target, so
an episode of n actions sums to 10 + boxes - 0.1 n if it is solved, and to (boxes on a target at its end) - 0.1 n if
not.

Differs from RAGEN (arXiv 2504.20073): every board can be solved within the action limit; held-out boards are in rooms
of their own; text that is no action costs nothing here, since the agent applies the penalty for an invalid turn; and
see `generation` for how boards are made. A uniformly random policy is as good here as there, near 18% with one box on 6
x 6 cells and 2% with two on 8 x 8, both in 10 actions.

A position is shown as a grid of symbols or as the coordinates of everything. Two views and any number of symbol sets
show the same boards, so that a test can tell whether a policy learned the game or the look of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from envs.sokoban.generation import RoomRecipe, SokobanBoard, draw_board
from envs.sokoban.rooms import ACTIONS, LETTERS, Position, Room
from envs.sokoban.solver import first_push, solve
from turnwise import seeding
from turnwise.world import (
    Column,
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
    whole_number,
)

LEGAL = "Up, Down, Left or Right"
PATIENCE = 100
"""Search horizon of the oracle, in actions, when the remaining ones do not suffice: it then plays as if they did."""
STEP, ON_TARGET, SOLVED = -0.1, 1.0, 10.0
RAGEN: dict[str, Any] = {"size": 6, "boxes": 1, "turns": 5, "actions_per_turn": 5, "actions": 10, "longest": 10}
VIEWS = ("grid", "coordinates")
MEANINGS = ("wall", "floor", "target", "box on a target", "box", "you", "you on a target")
"""Meanings of the seven symbols, in the order of `LETTERS`."""


class Sokoban(World):
    """Push every box to a target: boxes can be pushed and not pulled, one at a time.

    Parameters: `size`, cells along one side, the outer walls included (5 to 10); `boxes` (1 to 4); `shortest` and
    `longest`, the bounds on the number of actions of a shortest solution; `reverse_moves`, how many moves boards are
    played in reverse when they are made (see `generation`); `turns`, `actions_per_turn` and `actions`, the limits of an
    episode; `view`, "grid" or "coordinates"; `symbols`, seven characters for wall, floor, target, box on a target, box,
    player and player on a target, for the grid.

    A task fixes a board and no view: results under different views, symbols and limits are on the same boards.
    """

    name: ClassVar[str] = "sokoban"
    version: ClassVar[str] = "1"
    blocks = False
    oracle_success: ClassVar[float] = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ragen": RAGEN,
        "ragen-large": {**RAGEN, "size": 8, "boxes": 2, "reverse_moves": 8},
        "ragen-symbols": {**RAGEN, "symbols": "W.GCBA@"},
        "ragen-coordinates": {**RAGEN, "view": "coordinates"},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {
        "step": Reward("-0.1 for every action", "turn", 1.0),
        "box": Reward("1 for a box that comes onto a target, -1 for one that leaves it", "turn", 1.0),
        "solved": Reward("10 when every box is on a target", "outcome", 1.0),
    }
    columns: ClassVar[tuple[Column, ...]] = (
        *World.columns,
        Column("boxes", "box", percent=False, description="Boxes that are on a target at the end."),
    )
    grammar = f"{LEGAL}."

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 1,
        shortest: int = 1,
        longest: int = 10,
        reverse_moves: int = 30,
        turns: int = 5,
        actions_per_turn: int = 2,
        actions: int = 10,
        view: str = "grid",
        symbols: str = "#_O√XPS",
    ) -> None:
        self.limits = Limits(
            turns=whole_number("turns", turns, 1, 1000),
            actions_per_turn=whole_number("actions_per_turn", actions_per_turn, 1, 100),
            actions=whole_number("actions", actions, 1, 1000),
        )
        most = min(actions, turns * actions_per_turn)
        longest = whole_number("longest (a solution that the limits on turns and actions allow)", longest, 1, most)
        self._recipe = RoomRecipe(
            size=whole_number("size", size, 5, 10),
            boxes=whole_number("boxes", boxes, 1, 4),
            shortest=whole_number("shortest", shortest, 1, longest),
            longest=longest,
            reverse_moves=whole_number("reverse_moves", reverse_moves, 1, 1000),
        )
        self.view = one_of("view", view, VIEWS)
        self.symbols = _seven_symbols(symbols)
        recipe = self._recipe
        kind = f"{recipe.size}x{recipe.size}-boxes{recipe.boxes}-solution{recipe.shortest}to{recipe.longest}"
        self._family = f"{self.name}/{self.version}/{kind}-reverse{recipe.reverse_moves}/"
        aim = "Push every box to a target. You push a box by walking against it, one box at a time, and cannot pull."
        self.instruction = f"{aim} {legend(self.view, self.symbols)}"

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` boards of a split, which is unbounded. Tag `solution`: actions of a shortest solution."""
        return [self._task(split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> SokobanEnvironment:
        """Environment on the task's board; nothing in it is random. Raises ValueError for a task of another world."""
        require_family(task, self._family)
        return SokobanEnvironment(self, draw_board(task.seed, task.split, self._recipe))

    def _task(self, split: Split, number: int) -> Task:
        name = f"{self._family}{split}/{number}"
        seed = seeding.derive(0, name)
        return Task(self.name, name, split, seed, {"solution": draw_board(seed, split, self._recipe).solution})


class SokobanEnvironment(Environment):
    """One episode on one board. It enforces no limit: those are the agent's."""

    def __init__(self, world: Sokoban, board: SokobanBoard) -> None:
        self._world = world
        self._room = board.room
        self._position = board.start

    def reset(self) -> Observation:
        """The board at the start."""
        return self._observe()

    def step(self, action: str) -> Step:
        """Play one of the four actions, in any case; other text changes nothing."""
        name = action.strip().capitalize()
        if name not in ACTIONS or self._solved:
            refusal = self._observe("" if self._solved else f"Not an action. Legal: {LEGAL}.\n")
            return Step(refusal, terminated=self._solved, valid=False, effective=False, success=self._solved)
        before = self._position
        self._position = self._room.after(before, ACTIONS.index(name))
        effective = self._position != before
        rewards = self._rewards(before)
        return Step(self._observe(), rewards, terminated=self._solved, effective=effective, success=self._solved)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next actions of a shortest solution, as many as the turn allows.

        When no solution fits into the remaining actions, the oracle plays as if there were more; when a box is stuck
        for good, it makes any move.
        """
        solution = solve(self._room, self._position, remaining.actions)
        if solution is None:
            solution = solve(self._room, self._position, PATIENCE)
        if not solution:
            free = (each for each in range(len(ACTIONS)) if self._room.after(self._position, each) != self._position)
            return ScriptedAction("no way found", (ACTIONS[next(free, 0)],))
        count = min(remaining.actions_per_turn, remaining.actions)
        return ScriptedAction(self._thought(solution), tuple(ACTIONS[action] for action in solution[:count]))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """As many actions as the turn allows, each uniform over the four, whether they are blocked or not."""
        count = min(remaining.actions_per_turn, remaining.actions)
        return ScriptedAction("a random move", tuple(ACTIONS[action] for action in generator.integers(4, size=count)))

    @property
    def _solved(self) -> bool:
        return self._room.solved(self._position)

    def _rewards(self, before: Position) -> dict[str, float]:
        rewards = {"step": STEP}
        gained = self._room.on_target(self._position) - self._room.on_target(before)
        if gained:
            rewards["box"] = ON_TARGET * gained
        if self._solved:
            rewards["solved"] = SOLVED
        return rewards

    def _observe(self, preface: str = "") -> Observation:
        world = self._world
        text = preface + show(world.view, world.symbols, self._room, self._position)
        return Observation(text, state=self._room.letters(self._position))

    def _thought(self, solution: tuple[int, ...]) -> str:
        """Thought: where the next box is from the player, where it should go from there, and the push."""
        push = first_push(self._room, self._position, solution)
        box, target = self._way(self._position.player, push.box), self._way(push.box, push.end)
        return f"box {box}, target {target}, push {ACTIONS[push.action].lower()}"

    def _way(self, here: int, there: int) -> str:
        """Rows and columns from one cell to another, such as `down 1 right 2`."""
        (row, column), (end_row, end_column) = divmod(here, self._room.size), divmod(there, self._room.size)
        down, right = end_row - row, end_column - column
        parts = []
        if down:
            parts.append(f"down {down}" if down > 0 else f"up {-down}")
        if right:
            parts.append(f"right {right}" if right > 0 else f"left {-right}")
        return " ".join(parts) or "here"


def _seven_symbols(value: str) -> str:
    if not isinstance(value, str) or len(value) != 7 or len(set(value)) != 7 or " " in value or not value.isprintable():
        raise ValueError(f"symbols must be seven different visible characters, such as '#_O√XPS'; found {value!r}")
    return value


def legend(view: str, symbols: str) -> str:
    """How to read the view, in one or two sentences."""
    if view == "grid":
        return ", ".join(f"{symbol} {meaning}" for symbol, meaning in zip(symbols, MEANINGS, strict=True)) + "."
    return (
        "Every place is a row, counted from 0 downwards, and a column, counted from 0 to the right. "
        "The outermost rows and columns are walls; other walls are listed."
    )


def show(view: str, symbols: str, room: Room, position: Position) -> str:
    """The position as text, one line per row of the grid or per kind of object."""
    if view == "coordinates":
        return _coordinates(room, position)
    letters = room.letters(position).translate(str.maketrans(LETTERS, symbols))
    # Spaces make every cell a separate token.
    return "\n".join(" ".join(letters[first : first + room.size]) for first in range(0, len(letters), room.size))


def _coordinates(room: Room, position: Position) -> str:
    inner = range(1, room.size - 1)
    walls = [row * room.size + column for row in inner for column in inner if not room.floor[row * room.size + column]]
    lines = [("you", [position.player]), ("box", position.boxes), ("target", room.targets), ("wall", walls)]
    places = {name: ["{} {}".format(*divmod(cell, room.size)) for cell in cells] for name, cells in lines if cells}
    return "\n".join(f"{name} {', '.join(cells)}" for name, cells in places.items())
