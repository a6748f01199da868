"""Boards: a random walk carves a room, and the boxes are dragged away from their targets.

1. Walk over the square, turning now and then, and turn a small shape around every cell of the walk into floor.
2. Place the targets, each with its box on it, and the player, uniformly over the floor.
3. Play in reverse: a breadth-first search over `reverse_moves` moves, in which the player drags along the box that he
   walks away from. Of the positions right after a drag that leave every target bare, keep one where the boxes are
   farthest from their own targets, in rows plus columns.
4. Let the player walk 0, 1 or 2 cells away, without coming back.
5. Solve the board forwards. It is kept if the shortest solution has from `shortest` to `longest` actions.

So every board is known to be solvable in two ways: the reverse of how it was made, and the solution that was found.

This is the procedure of gym-sokoban (Schrader 2018, after Racanière et al. 2017, arXiv 1707.06203), which RAGEN uses.
Differs from it: gym-sokoban's reverse play is a depth-first search that keeps the first of the farthest positions and
favours a change of the dragged box; RAGEN's walk has up to 3 steps; there, some boards need more actions than an
episode has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from envs.sokoban.rooms import MOVES, Position, Room
from envs.sokoban.solver import solve
from turnwise import seeding
from turnwise.world import Split

SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""Cells that become floor around a step of the walk, as (rows down, columns right).

Two straights, two corners and a block.
"""
TURN_PROBABILITY = 0.35
STEPS_PER_SIDE = 1.7
"""Steps of the walk per cell of the square's height plus width."""
LONGEST_WALK_AWAY = 2
MOST_POSITIONS = 20_000
"""Number of positions after which the reverse play stops, whatever `reverse_moves` is."""
MAXIMUM_DRAWS = 20_000


@dataclass(frozen=True)
class RoomRecipe:
    """Requirements on boards: see the parameters of `Sokoban`."""

    size: int
    boxes: int
    shortest: int
    longest: int
    reverse_moves: int


@dataclass(frozen=True)
class SokobanBoard:
    """A room, the initial position of player and boxes, and the number of actions of a shortest solution."""

    room: Room
    start: Position
    solution: int


@lru_cache(maxsize=50_000)
def draw_board(seed: int, split: Split, recipe: RoomRecipe) -> SokobanBoard:
    """The solvable board of the split that a task's seed draws. Raises ValueError after `MAXIMUM_DRAWS` failed draws.

    Cached, so that a process makes a board once for all episodes that are played on it.
    """
    generator = seeding.generator(seed, "sokoban board")
    for _ in range(MAXIMUM_DRAWS):
        board = _any_board(generator, split, recipe)
        if board is not None:
            return board
    raise ValueError(
        f"size, boxes, shortest, longest and reverse_moves must allow for {split} boards; found none in "
        f"{MAXIMUM_DRAWS} draws at {recipe}: lower shortest or boxes, or raise size or longest"
    )


def _any_board(generator: np.random.Generator, split: Split, recipe: RoomRecipe) -> SokobanBoard | None:
    """One draw: None if there is no space for the boxes, the split is another, or the solution is out of bounds."""
    floor = _carve(generator, recipe.size)
    cells = [cell for cell, is_floor in enumerate(floor) if is_floor]
    if len(cells) < 2 * recipe.boxes + 1:
        return None
    player, *targets = (cells[place] for place in generator.permutation(len(cells))[: recipe.boxes + 1].tolist())
    room = _room(recipe.size, floor, tuple(sorted(targets)))
    if room.split != split:
        return None
    apart = _drag_apart(generator, room, player, recipe.reverse_moves)
    if apart is None:
        return None
    start = _walk_away(generator, room, apart)
    solution = solve(room, start, recipe.longest)
    if solution is None or len(solution) < recipe.shortest:
        return None
    return SokobanBoard(room, start, len(solution))


def _carve(generator: np.random.Generator, size: int) -> tuple[bool, ...]:
    """Connected floor from a random walk, [size * size]; the outermost cells stay walls."""
    steps = int(STEPS_PER_SIDE * 2 * size)
    turns = (generator.random(steps) < TURN_PROBABILITY).tolist()
    directions = generator.integers(len(MOVES), size=steps + 1).tolist()
    shapes = generator.integers(len(SHAPES), size=steps).tolist()
    row, column = generator.integers(1, size - 1, size=2).tolist()
    ahead, carved = _walk_tables(size)
    cell, direction, floor = row * size + column, directions[-1], 0
    for turn, new_direction, shape in zip(turns, directions, shapes, strict=False):
        if turn:
            direction = new_direction
        cell = ahead[direction][cell]
        floor |= carved[shape][cell]
    return _floor(size, floor)


@cache
def _walk_tables(size: int) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """The next cell of the walk, by direction and cell, and the cells that become floor, by shape and cell, as bits."""
    inner = range(1, size - 1)
    cells = [(row, column) for row in inner for column in inner]

    def within(place: int) -> int:
        return min(max(place, 1), size - 2)

    ahead = [
        {row * size + column: within(row + down) * size + within(column + right) for row, column in cells}
        for down, right in MOVES
    ]
    carved = [
        {
            row * size + column: sum(
                1 << (row + below) * size + column + beside
                for below, beside in shape
                if row + below in inner and column + beside in inner
            )
            for row, column in cells
        }
        for shape in SHAPES
    ]
    return ahead, carved


@lru_cache(maxsize=20_000)
def _floor(size: int, bits: int) -> tuple[bool, ...]:
    return tuple(bool(bits >> cell & 1) for cell in range(size * size))


@lru_cache(maxsize=20_000)
def _room(size: int, floor: tuple[bool, ...], targets: tuple[int, ...]) -> Room:
    """One room for all draws of the same: small rooms recur, and what is derived from one is derived once."""
    return Room(size, floor, targets)


def _drag_apart(generator: np.random.Generator, room: Room, player: int, reverse_moves: int) -> Position | None:
    """Uniformly random choice among the farthest positions of the reverse play; None if no box can be dragged away."""
    best = _farthest(room, player, reverse_moves)
    if not best:
        return None
    player, boxes = best[generator.integers(len(best))]
    return Position(player, tuple(sorted(boxes)))


@lru_cache(maxsize=20_000)
def _farthest(room: Room, player: int, reverse_moves: int) -> list[tuple[int, tuple[int, ...]]]:
    """The positions of the reverse play in which the boxes are farthest from their own targets."""
    farthest = 0
    best: list[tuple[int, tuple[int, ...]]] = []
    for position in _dragged(room, player, reverse_moves):
        distance = _distance(room, position[1])
        if distance > farthest:
            farthest, best = distance, []
        if distance == farthest:
            best.append(position)
    return best


def _dragged(room: Room, player: int, reverse_moves: int) -> list[tuple[int, tuple[int, ...]]]:
    """Every position right after a drag with all targets bare: the player, and each target's own box."""
    frontier = [(player, room.targets)]
    seen = set(frontier)
    positions: dict[tuple[int, tuple[int, ...]], None] = {}
    steps, bare = _steps(room.floor, room.offsets), frozenset(room.targets).isdisjoint
    for _ in range(reverse_moves):
        following = []
        for before, boxes in frontier:
            for after, behind in steps[before]:
                if after in boxes:
                    continue
                position = (after, boxes)
                if behind in boxes:
                    dragged = tuple([before if box == behind else box for box in boxes])
                    position = (after, dragged)
                    if bare(dragged):
                        positions[position] = None
                if position not in seen:
                    seen.add(position)
                    following.append(position)
        frontier = following
        if not frontier or len(seen) > MOST_POSITIONS:
            break
    return list(positions)


@lru_cache(maxsize=20_000)
def _steps(floor: tuple[bool, ...], offsets: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """For every cell of the floor, its neighbours on the floor, each with the cell opposite, in the order of moves."""
    return [
        [(cell + offset, cell - offset) for offset in offsets if is_floor and floor[cell + offset]]
        for cell, is_floor in enumerate(floor)
    ]


def _distance(room: Room, boxes: tuple[int, ...]) -> int:
    """Rows plus columns between every box and its own target, summed."""
    total = 0
    for box, target in zip(boxes, room.targets, strict=True):
        (row, column), (target_row, target_column) = divmod(box, room.size), divmod(target, room.size)
        total += abs(row - target_row) + abs(column - target_column)
    return total


def _walk_away(generator: np.random.Generator, room: Room, position: Position) -> Position:
    """Position after 0, 1 or 2 steps onto free floor without turning back; fewer where the player cannot go on."""
    player, boxes = position
    been = [player]
    for _ in range(generator.integers(LONGEST_WALK_AWAY + 1)):
        beside = [player + offset for offset in room.offsets]
        free = [cell for cell in beside if room.floor[cell] and cell not in boxes and cell not in been]
        if not free:
            break
        player = free[generator.integers(len(free))]
        been.append(player)
    return Position(player, boxes)
