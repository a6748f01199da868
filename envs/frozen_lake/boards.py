"""Boards with a random start, a random goal and a path between them, and the split that each belongs to.

The split is a function of the board's content: by a digest of its text, every tenth board is a validation board, every
tenth a test board, and the others are for training. A task draws boards until one belongs to its split. So no board is
in two splits, whatever the number of tasks, the size or the share of ice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from turnwise import seeding
from turnwise.world import Split

START, ICE, HOLE, GOAL = "S", "F", "H", "G"
"""Gymnasium's letters."""
MOVES: tuple[tuple[int, int], ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""(rows down, columns right) of Gymnasium's actions 0 to 3: left, down, right, up."""
MAXIMUM_DRAWS = 20_000


@dataclass(frozen=True)
class LakeBoard:
    """A square of letters, one string per row. Cells are numbered row by row, as Gymnasium does."""

    rows: tuple[str, ...]

    @property
    def size(self) -> int:
        """Cells along one side."""
        return len(self.rows)

    @cached_property
    def cells(self) -> str:
        """All letters, row by row."""
        return "".join(self.rows)

    @property
    def start(self) -> int:
        """The cell where the agent starts."""
        return self.cells.index(START)

    @property
    def goal(self) -> int:
        """The cell to reach."""
        return self.cells.index(GOAL)

    def neighbour(self, cell: int, action: int) -> int:
        """The cell that an action leads to without slipping; at the edge of the board, the same cell."""
        return _neighbours(self.size)[cell][action]

    @cached_property
    def distances(self) -> tuple[int | None, ...]:
        """Length in actions of the shortest path from each cell to the goal; None where there is no path."""
        cells, neighbours = self.cells, _neighbours(self.size)
        distances: dict[int, int] = {self.goal: 0}
        frontier = deque([self.goal])
        while frontier:
            cell = frontier.popleft()
            for neighbour in neighbours[cell]:
                if neighbour not in distances and cells[neighbour] != HOLE:
                    distances[neighbour] = distances[cell] + 1
                    frontier.append(neighbour)
        return tuple(distances.get(cell) for cell in range(len(cells)))

    @property
    def distance(self) -> int | None:
        """The length of the shortest path from the start to the goal, in actions; None when there is no path."""
        return self.distances[self.start]

    @property
    def split(self) -> Split:
        """The split that this board belongs to."""
        draw = seeding.derive(0, "frozen_lake split", *self.rows) % 10
        return "validation" if draw == 8 else "test" if draw == 9 else "train"


@cache
def _neighbours(size: int) -> list[list[int]]:
    """The cells that the actions lead to from each cell of a square, without slipping."""

    def ahead(cell: int, down: int, right: int) -> int:
        row, column = cell // size + down, cell % size + right
        return row * size + column if 0 <= row < size and 0 <= column < size else cell

    return [[ahead(cell, *move) for move in MOVES] for cell in range(size * size)]


@lru_cache(maxsize=20_000)
def draw_board(seed: int, split: Split, size: int, frozen: float) -> LakeBoard:
    """The board that a task's seed draws: of its split, with a path. Cached: every episode of a task needs it.

    Raises ValueError after `MAXIMUM_DRAWS` failed draws.
    """
    generator = seeding.generator(seed, "frozen_lake board")
    for _ in range(MAXIMUM_DRAWS):
        board = _any_board(generator, size, frozen)
        if board.split == split and board.distance is not None:
            return board
    raise ValueError(
        f"size and frozen must allow for {split} boards with a path from start to goal; found none in {MAXIMUM_DRAWS} "
        f"draws at size {size}, frozen {frozen}: raise frozen, or change size"
    )


def _any_board(generator: np.random.Generator, size: int, frozen: float) -> LakeBoard:
    """Board with a uniformly random start and goal; every other cell is ice with probability `frozen`, else a hole."""
    letters = [ICE if share < frozen else HOLE for share in generator.random(size * size).tolist()]
    start = int(generator.integers(size * size))
    goal = (start + 1 + int(generator.integers(size * size - 1))) % (size * size)
    letters[start], letters[goal] = START, GOAL
    text = "".join(letters)
    return LakeBoard(tuple(text[first : first + size] for first in range(0, size * size, size)))
