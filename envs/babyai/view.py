"""The agent's view in words: objects by their position relative to the agent, and walls ahead, left and right of it.

The field of view is the package's: 7 by 7 cells, the agent in the middle of the nearest row, nothing behind walls and
closed doors. The words follow BabyAI-Text (arXiv 2302.02662), but shorter.

A path to an object in view is the shortest one of turns and steps over cells seen to be free, until the object is right
ahead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import product

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

REACH = 3
"""Cells in view to either side."""
DEPTH = 6
"""Cells in view ahead."""
SIDES = {"forward": (0, 1), "left": (-1, 0), "right": (1, 0)}

Cell = tuple[int, int]
"""Relative position: cells to the right of the agent (negative: to the left), and cells ahead of it."""

_STATES = {number: state for state, number in STATE_TO_IDX.items()}
HEADINGS: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Direction of a step for each heading: ahead, and then clockwise."""

Pose = tuple[Cell, int]
"""A cell, and a heading as an index into `HEADINGS`."""
HERE: Pose = ((0, 0), 0)


@dataclass(frozen=True)
class Thing:
    """An object in view that a mission can refer to."""

    name: str
    """Colour and kind, such as `red ball`."""
    cell: Cell
    state: str = ""
    """State of a door: open, closed or locked. Empty for other objects."""

    def __str__(self) -> str:
        """Full description, such as `a locked red door 2 left 3 forward`."""
        words = f"{self.state} {self.name}".strip()
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words} {self.place}"

    @property
    def kind(self) -> str:
        """Kind without the colour, such as `ball`."""
        return self.name.split()[-1]

    @property
    def place(self) -> str:
        """Position relative to the agent, such as `2 left 3 forward`."""
        right, forward = self.cell
        beside = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
        return f"{beside} {f'{forward} forward' if forward else ''}".strip()


@dataclass(frozen=True)
class View:
    """The field of view.

    `things` are sorted from near to far; `walls` gives the distance in cells by side; `free` are the cells to walk on.
    """

    things: tuple[Thing, ...]
    walls: dict[str, int]
    free: frozenset[Cell]

    def __str__(self) -> str:
        """Two lines: objects, then walls."""
        things = ", ".join(str(thing) for thing in self.things)
        walls = ", ".join(f"{distance} {side}" for side, distance in self.walls.items())
        return f"You see: {things or 'nothing'}\nWalls: {walls or 'none'}"

    @property
    def ahead(self) -> Thing | None:
        """The object directly in front of the agent, or None."""
        return next((thing for thing in self.things if thing.cell == (0, 1)), None)


def view_of(image: np.ndarray) -> View:
    """View decoded from the package's array, [7, 7, 3]: object type, colour and state of each cell."""
    things, walled, free = [], set(), set()
    numbers = image.tolist()
    for column, row in product(range(2 * REACH + 1), range(DEPTH + 1)):
        cell = (column - REACH, DEPTH - row)
        kind, color, state = numbers[column][row]
        name = IDX_TO_OBJECT[kind]
        if cell == (0, 0):  # the agent's own cell, in which the package shows what is carried
            free.add(cell)
        elif name == "wall":
            walled.add(cell)
        elif name == "empty":
            free.add(cell)
        elif name != "unseen":
            things.append(Thing(f"{IDX_TO_COLOR[color]} {name}", cell, _STATES[state] if name == "door" else ""))
            if things[-1].state == "open":
                free.add(cell)
    things.sort(key=lambda thing: (abs(thing.cell[0]) + thing.cell[1], thing.cell))
    return View(tuple(things), _nearest(walled), frozenset(free))


def _nearest(walled: set[Cell]) -> dict[str, int]:
    """Distance in cells to the nearest wall on each side that has one in view."""
    nearest = {}
    for side, (right, forward) in SIDES.items():
        distances = [far for far in range(1, DEPTH + 1) if (far * right, far * forward) in walled]
        if distances:
            nearest[side] = distances[0]
    return nearest


def way(view: View, name: str) -> list[Actions] | None:
    """Shortest path to any object of this name, `red ball` or `ball`: empty when one is directly ahead.

    None when no such object is in view, or no path to it. Of equally short paths, the one that goes straight on for
    longer is taken, then the one that turns left.
    """
    goals = {thing.cell for thing in view.things if name in (thing.name, thing.kind)}
    came: dict[Pose, tuple[Pose, Actions] | None] = {HERE: None}
    frontier = deque([HERE])
    while frontier:
        pose = frontier.popleft()
        if _ahead(pose) in goals:
            return _back(came, pose)
        for action in (Actions.forward, Actions.left, Actions.right):
            following = moved(pose, action)
            if following[0] in view.free and following not in came:
                came[following] = (pose, action)
                frontier.append(following)
    return None


def ways(view: View) -> dict[str, list[Actions]]:
    """Shortest path to each object name in view that can be reached, from near to far."""
    names = dict.fromkeys(thing.name for thing in view.things)
    return {name: path for name in names if (path := way(view, name)) is not None}


def moved(pose: Pose, action: Actions) -> Pose:
    """Pose after a turn, or after a step that nothing blocks."""
    if action == Actions.forward:
        return _ahead(pose), pose[1]
    return pose[0], (pose[1] + (1 if action == Actions.right else -1)) % len(HEADINGS)


def _ahead(pose: Pose) -> Cell:
    (right, forward), heading = pose
    return right + HEADINGS[heading][0], forward + HEADINGS[heading][1]


def _back(came: dict[Pose, tuple[Pose, Actions] | None], pose: Pose) -> list[Actions]:
    """Actions that led to a pose, in order."""
    actions = []
    step = came[pose]
    while step is not None:
        pose, action = step
        actions.append(action)
        step = came[pose]
    return actions[::-1]
