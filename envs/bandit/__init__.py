"""The world `bandit`: RAGEN's choice between two named arms (arXiv 2504.20073), one steady and one daring.

* `names`: the names of the arms, and the split that a name or a pair of names belongs to.
* `world`: the world and its environment.
"""

from envs.bandit.world import Bandit

__all__ = ["Bandit"]
