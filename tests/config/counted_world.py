"""A world that counts how often it is made."""

from __future__ import annotations

from envs.frozen_lake import FrozenLake


class CountedLake(FrozenLake):
    """FrozenLake, counted."""

    made = 0

    def __init__(self, size: int = 4, turns: int = 8) -> None:
        super().__init__(size=size, turns=turns)
        CountedLake.made += 1
