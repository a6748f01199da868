"""The world `mixture`: several worlds in one task set, by weight, to train on some of them and test on others."""

from envs.mixture.world import Mixture

__all__ = ["Mixture"]
