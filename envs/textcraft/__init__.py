"""The world `textcraft`: craft a Minecraft item from listed recipes, after TextCraft (arXiv 2311.05772) and AgentGym.

* `recipes`: the game's own recipes, from the package `minecraft-data`, with every circle cut.
* `problems`: goals, the split that a goal belongs to, and the recipes that a task lists.
* `shortage`: what is missing on the way to the goal, which is all the oracle needs.
* `commands`: the grammar.
* `episode` and `world`: the environment with its scripted players, and the world.
"""

from envs.textcraft.world import TextCraft

__all__ = ["TextCraft"]
