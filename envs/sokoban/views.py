"""Text of a position: a grid of symbols, or the coordinates of everything.

Two views and any number of symbol sets show the same boards, so that a test can tell whether a policy learned the game
or the look of it.
"""

from __future__ import annotations

from envs.sokoban.rooms import LETTERS, Position, Room

VIEWS = ("grid", "coordinates")
MEANINGS = ("wall", "floor", "target", "box on a target", "box", "you", "you on a target")
"""Meanings of the seven symbols, in the order of `LETTERS`."""


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
    shown = room.letters(position).translate(str.maketrans(LETTERS, symbols))
    # Spaces make every cell a separate token.
    return "\n".join(" ".join(shown[first : first + room.size]) for first in range(0, len(shown), room.size))


def _coordinates(room: Room, position: Position) -> str:
    inner = range(1, room.size - 1)
    walls = [row * room.size + column for row in inner for column in inner if not room.floor[row * room.size + column]]
    lines = [("you", [position.player]), ("box", position.boxes), ("target", room.targets), ("wall", walls)]
    places = {name: ["{} {}".format(*divmod(cell, room.size)) for cell in cells] for name, cells in lines if cells}
    return "\n".join(f"{name} {', '.join(found)}" for name, found in places.items())
