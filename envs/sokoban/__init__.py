"""The world `sokoban`: push every box to a target, as RAGEN plays it (arXiv 2504.20073), on boards of our own.

* `rooms`: walls and targets, the rule of the push, and the rule by which a room belongs to one split only.
* `solver`: the shortest solution, by breadth-first search.
* `generation`: boards that can be solved within a stated number of actions.
* `views`: a position as a grid of symbols or as coordinates.
* `world`: the world and its environment.
"""

from envs.sokoban.world import Sokoban

__all__ = ["Sokoban"]
