"""The agent's view in words: objects by their position relative to the agent, and walls ahead, left and right of it.

The field of view is the package's: 7 by 7 cells, the agent in the middle of the nearest row, nothing behind walls and
closed doors. The words follow BabyAI-Text (arXiv 2302.02662), but shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

REACH = 3
"""Cells in view to either side."""
DEPTH = 6
"""Cells in view ahead."""
SIDES = {"forward": (0, 1), "left": (-1, 0), "right": (1, 0)}

Cell = tuple[int, int]
"""Relative position: cells to the right of the agent (negative: to the left), and cells ahead of it."""

_STATES = {number: state for state, number in STATE_TO_IDX.items()}


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
        shown = IDX_TO_OBJECT[kind]
        if cell == (0, 0):  # the agent's own cell, in which the package shows what is carried
            free.add(cell)
        elif shown == "wall":
            walled.add(cell)
        elif shown == "empty":
            free.add(cell)
        elif shown != "unseen":
            things.append(Thing(f"{IDX_TO_COLOR[color]} {shown}", cell, _STATES[state] if shown == "door" else ""))
            if things[-1].state == "open":
                free.add(cell)
    things.sort(key=lambda thing: (abs(thing.cell[0]) + thing.cell[1], thing.cell))
    return View(tuple(things), _nearest(walled), frozenset(free))


def _nearest(walled: set[Cell]) -> dict[str, int]:
    """Distance in cells to the nearest wall on each side that has one in view."""
    found = {}
    for side, (right, forward) in SIDES.items():
        distances = [far for far in range(1, DEPTH + 1) if (far * right, far * forward) in walled]
        if distances:
            found[side] = distances[0]
    return found
