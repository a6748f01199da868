"""Shortest paths to objects in view: turns and steps over cells seen to be free, until the object is right ahead."""

from __future__ import annotations

from collections import deque

from minigrid.core.actions import Actions

from envs.babyai.view import Cell, View

HEADINGS: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Direction of a step for each heading: ahead, and then clockwise."""

Pose = tuple[Cell, int]
"""A cell, and a heading as an index into `HEADINGS`."""
HERE: Pose = ((0, 0), 0)


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
    return {name: found for name in names if (found := way(view, name)) is not None}


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
