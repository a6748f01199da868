"""The world `textcraft`: craft a Minecraft item from listed recipes, after TextCraft (arXiv 2311.05772) and AgentGym.

* `recipes`: the game's own recipes, from the package `minecraft-data`, without cycles.
* `problems`: goals, the split that a goal belongs to, and the recipes that a task lists.
* `shortage`: the items still missing for the goal, from which the oracle acts.
* `commands`: the grammar.
* `episode`: the environment and its baseline policies.
* `world`: the world.
"""

from envs.textcraft.world import TextCraft

__all__ = ["TextCraft"]
