"""The world `babyai`: MiniGrid's BabyAI levels (arXiv 1810.08272) in words, with the package's own bot as the oracle.

* `levels`: the levels, those that are refused and why, and the split that a level's layout belongs to.
* `view`: what the agent sees, as text.
* `walking`: the way to a thing in view, for the action `go to`.
* `adviser`: the bot, in step with what was played.
* `episode` and `world`: the environment with its scripted players, and the world.
"""

from envs.babyai.world import BabyAI

__all__ = ["BabyAI"]
