"""Several worlds in one panel, by weight: training on some of them, testing on others.

`world` is the world that offers them all, `parts` what is said of each and read from the parameters, `episode` an
episode of one of them under the mixture's names.
"""

from envs.mixture.world import Mixture

__all__ = ["Mixture"]
