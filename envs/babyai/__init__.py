"""The world `babyai`: MiniGrid's BabyAI levels (arXiv 1810.08272) in words, with the package's own bot as the oracle.

* `levels`: the levels, which of them are refused and why, and the split that a layout belongs to.
* `view`: the agent's field of view as text, and paths to objects in it, for the action `go to`.
* `adviser`: the bot, kept in step with the actions played.
* `episode`: the environment and its baseline policies.
* `world`: the world.
"""

from envs.babyai.world import BabyAI

__all__ = ["BabyAI"]
