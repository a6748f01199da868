"""Text of a position on the lake: a grid of symbols, or the coordinates of everything, as RAGEN-2 shows it.

Both show the same boards, so that a test can tell whether a policy learned the game or the look of it.
"""

from __future__ import annotations

from envs.frozen_lake.boards import GOAL, HOLE, LakeBoard

VIEWS = ("grid", "coordinates")
MEANINGS = ("you", "ice", "hole", "goal", "you in a hole", "you on the goal")
"""Meanings of the six symbols of a grid, in order."""


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
    shown = [{GOAL: goal, HOLE: hole}.get(letter, ice) for letter in board.cells]
    shown[cell] = {GOAL: arrived, HOLE: fallen}.get(board.cells[cell], player)
    return [shown[first : first + board.size] for first in range(0, board.size**2, board.size)]


def coordinates(board: LakeBoard, cell: int) -> str:
    """One line for the agent, the goal and the holes, and one more where the agent is in a hole or on the goal."""
    holes = [place for place, letter in enumerate(board.cells) if letter == HOLE]
    places = {"you": [cell], "goal": [board.goal], "hole": holes}
    lines = [
        f"{name} {', '.join('{} {}'.format(*divmod(place, board.size)) for place in found)}"
        for name, found in places.items()
        if found
    ]
    state = {GOAL: ["you are on the goal"], HOLE: ["you are in a hole"]}.get(board.cells[cell], [])
    return "\n".join([*lines, *state])
