"""Rooms: walls and targets, the rule of the push, and the split that a room belongs to.

The split is a function of the room's content: by a digest of its text, every tenth room is a validation room, every
tenth a test room, and the others are for training. A room and its seven rotations and reflections have one digest. So
no held-out board shares its walls and targets with a training board, not even mirrored, wherever the boxes and the
player are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turnwise import seeding
from turnwise.world import Split

LETTERS = "#-.*$@+"
"""The usual notation of Sokoban boards: wall, floor, target, box on a target, box, player, player on a target."""
WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = tuple(LETTERS)
ACTIONS = ("Up", "Down", "Left", "Right")
MOVES: tuple[tuple[int, int], ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""(rows down, columns right) of each action."""
SALT = 23
"""Part of the digest.

There are few rooms of 6 x 6 cells: fewer than two thousand account for nearly all boards, and the
most frequent one for 3%. One tenth of them can therefore be twice as easy as another. Of the numbers 0 to 299 this one
makes the splits most alike in the lengths of solutions and in the success of a uniformly random policy.
"""


class Position(NamedTuple):
    """Cell of the player, and cells of the boxes in ascending order."""

    player: int
    boxes: tuple[int, ...]


@dataclass(frozen=True)
class Room:
    """A square enclosed by walls, with some cells as targets. Cells are numbered row by row."""

    size: int
    """Cells along one side."""
    floor: tuple[bool, ...]
    """For every cell, True unless it is a wall."""
    targets: tuple[int, ...]
    """Target cells in ascending order; as many as boxes."""

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Change of the cell number under each action."""
        return tuple(down * self.size + right for down, right in MOVES)

    def after(self, position: Position, action: int) -> Position:
        """Position after an action: unchanged if a wall, or a box that cannot move, blocks it."""
        player, boxes = position
        ahead = player + self.offsets[action]
        if not self.floor[ahead]:
            return position
        if ahead not in boxes:
            return Position(ahead, boxes)
        beyond = ahead + self.offsets[action]
        if not self.floor[beyond] or beyond in boxes:
            return position
        return Position(ahead, tuple(sorted(beyond if box == ahead else box for box in boxes)))

    def solved(self, position: Position) -> bool:
        """Whether every box is on a target."""
        return position.boxes == self.targets

    def on_target(self, position: Position) -> int:
        """The number of boxes that are on a target."""
        return sum(box in self.targets for box in position.boxes)

    @cached_property
    def pushes(self) -> tuple[int | None, ...]:
        """For every cell, the fewest pushes from there to a target for a box on its own; None if there is no way.

        Found backwards: a box can come from a neighbouring cell if the player has room behind it.
        """
        pushes: dict[int, int] = dict.fromkeys(self.targets, 0)
        frontier = deque(self.targets)
        while frontier:
            cell = frontier.popleft()
            for offset in self.offsets:
                before = cell - offset
                if before not in pushes and self.floor[before] and self.floor[before - offset]:
                    pushes[before] = pushes[cell] + 1
                    frontier.append(before)
        return tuple(pushes.get(cell) for cell in range(len(self.floor)))

    def letters(self, position: Position | None = None) -> str:
        """The room row by row, with the player and the boxes of a position, or empty without one."""
        player, boxes = position or Position(-1, ())
        letters = [FLOOR if floor else WALL for floor in self.floor]
        for target in self.targets:
            letters[target] = TARGET
        for box in boxes:
            letters[box] = BOX_ON_TARGET if box in self.targets else BOX
        if position:
            letters[player] = PLAYER_ON_TARGET if player in self.targets else PLAYER
        return "".join(letters)

    @cached_property
    def split(self) -> Split:
        """The split that this room belongs to."""
        draw = seeding.derive(0, "sokoban split", SALT, min(_images(self.letters(), self.size))) % 10
        return "validation" if draw == 8 else "test" if draw == 9 else "train"


def read_rows(rows: Sequence[str]) -> tuple[Room, Position]:
    """Room and position from a board in the usual notation, one text per row."""
    letters = "".join(rows)
    floor = tuple(letter != WALL for letter in letters)
    room = Room(len(rows), floor, _cells(letters, TARGET + BOX_ON_TARGET + PLAYER_ON_TARGET))
    (player,) = _cells(letters, PLAYER + PLAYER_ON_TARGET)
    return room, Position(player, _cells(letters, BOX + BOX_ON_TARGET))


def _cells(letters: str, kinds: str) -> tuple[int, ...]:
    return tuple(cell for cell, letter in enumerate(letters) if letter in kinds)


def _images(letters: str, size: int) -> Iterator[str]:
    """The eight images of a square: its four rotations, each as it is and reflected."""
    rows = [letters[first : first + size] for first in range(0, size * size, size)]
    for _ in range(4):
        rows = ["".join(column) for column in zip(*reversed(rows), strict=True)]
        yield "".join(rows)
        yield "".join(reversed(rows))
