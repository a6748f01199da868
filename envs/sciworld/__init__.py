"""The world `sciworld`: ScienceWorld (arXiv 2203.07540), elementary-school science done as text in a house.

* `variations`: the thirty types of task, their variations and splits.
* `simulator`: one Java process of the package, and the isolation of the episodes in it.
* `watch`: a watchdog that tells a process that hangs from one that is slow.
* `pool`: the few processes that all episodes share.
* `episode`: one episode, and its baseline policies.
* `world`: tasks, parameters and rewards.
"""

from envs.sciworld.world import SciWorld

__all__ = ["SciWorld"]
