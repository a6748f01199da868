"""The world `sciworld`: ScienceWorld (arXiv 2203.07540), a house in which elementary-school science is done as text.

* `variations`: the thirty types of task, their variations and splits.
* `simulator`: one Java process of the package, and what keeps the episodes in it apart.
* `watch`: which tells a process that hangs from one that is slow.
* `pool`: the few processes that all episodes share.
* `episode`: one episode, and its scripted players.
* `world`: tasks, parameters and rewards.
"""

from envs.sciworld.world import SciWorld

__all__ = ["SciWorld"]
