"""The shortest solution of a board: breadth-first search over the positions of player and boxes.

A position is pruned where a lower bound shows that it cannot be solved in time: every box needs at least the pushes
that would take it to its nearest target if it were alone (`Room.pushes`), each of them an action, and a box in a cell
without such pushes is lost. Among solutions of equal length the search finds the first in the order of the actions (Up,
Down, Left, Right at the first difference), so that the rest of a solution equals the solution found from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from envs.sokoban.rooms import ACTIONS, Position, Room

MOST_POSITIONS = 200_000
"""Positions at which the search gives up: a few seconds, and beyond any board of two boxes on 8 x 8 cells."""


@lru_cache(maxsize=20_000)
def solve(room: Room, position: Position, most: int) -> tuple[int, ...] | None:
    """The fewest actions, as indices, that bring every box to a target; None if more than `most` would be needed.

    Also None after `MOST_POSITIONS` positions, which large rooms with many boxes can reach.
    """
    if room.solved(position):
        return ()
    came_from: dict[Position, tuple[Position, int]] = {position: (position, -1)}
    frontier = [position]
    for depth in range(1, most + 1):
        following = []
        for before in frontier:
            for action in range(len(ACTIONS)):
                after = room.after(before, action)
                if after in came_from:
                    continue
                came_from[after] = (before, action)
                if room.solved(after):
                    return _way(came_from, position, after)
                if _pushes_needed(room, after) <= most - depth:
                    following.append(after)
        frontier = following
        if not frontier or len(came_from) > MOST_POSITIONS:
            return None
    return None


@dataclass(frozen=True)
class Push:
    """The first push of a solution: cell of the box, action, and final cell of that box."""

    box: int
    action: int
    end: int


def first_push(room: Room, position: Position, solution: tuple[int, ...]) -> Push:
    """The first push of a solution. Raises ValueError when it contains none."""
    pushes = []
    for action in solution:
        before, position = position, room.after(position, action)
        if position.boxes != before.boxes:
            # The player now stands where the box was.
            pushes.append((position.player, action))
    if not pushes:
        raise ValueError(f"a solution must push a box; found {solution}")
    (box, first), end = pushes[0], pushes[0][0]
    for cell, action in pushes:
        if cell == end:
            end += room.offsets[action]
    return Push(box, first, end)


def _pushes_needed(room: Room, position: Position) -> float:
    """Lower bound on the pushes still needed; infinite if a box is lost."""
    needed = 0.0
    for box in position.boxes:
        pushes = room.pushes[box]
        needed += float("inf") if pushes is None else pushes
    return needed


def _way(came_from: dict[Position, tuple[Position, int]], start: Position, end: Position) -> tuple[int, ...]:
    actions = []
    while end != start:
        end, action = came_from[end]
        actions.append(action)
    return tuple(reversed(actions))
