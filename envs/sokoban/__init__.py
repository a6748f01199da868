"""The world `sokoban`: push every box to a target, as RAGEN plays it (arXiv 2504.20073), on boards generated here.

* `rooms`: walls and targets, the rule of the push, and the rule that assigns each room to one split.
* `solver`: the shortest solution, by breadth-first search.
* `generation`: boards that can be solved within a given number of actions.
* `world`: the world, its environment, and the text of a position, a grid of symbols or coordinates.
"""

from envs.sokoban.world import Sokoban

__all__ = ["Sokoban"]
