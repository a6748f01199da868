"""Curricula over the horizon: the limit on turns of a training episode, iteration by iteration."""
