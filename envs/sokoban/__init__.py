"""The world `sokoban`: push every box to a target, as RAGEN plays it (arXiv 2504.20073), on boards generated here.

* `rooms`: walls and targets, the rule of the push, and the rule that assigns each room to one split.
* `solver`: the shortest solution, by breadth-first search.
* `generation`: boards that can be solved within a given number of actions.
* `views`: a position as a grid of symbols or as coordinates.
* `world`: the world and its environment.
"""

from envs.sokoban.world import Sokoban

__all__ = ["Sokoban"]
