"""The world `mixture`: several worlds in one task set, by weight, to train on some of them and test on others.

* `world`: the world that offers them all.
* `parts`: the description of each part, read from the parameters.
* `episode`: an episode of one part, under the mixture's names.
"""

from envs.mixture.world import Mixture

__all__ = ["Mixture"]
