"""The world `frozen_lake`: Gymnasium's FrozenLake as RAGEN plays it (arXiv 2504.20073), with an exact oracle.

* `boards`: random boards, and the rule that assigns each board to one split.
* `planner`: the optimal policy under the remaining turns and actions, by dynamic programming.
* `lake`: the world, its environment, and the text of a position, a grid or coordinates.
"""

from envs.frozen_lake.lake import FrozenLake

__all__ = ["FrozenLake"]
