"""The world `agentgym`: any environment server of AgentGym (arXiv 2406.04151), played over its HTTP interface.

* `servers`: what each server calls its fields, as a table.
* `client`: requests, and the ways in which a server says that it failed.
* `world`: item numbers as tasks, one remote environment per episode, and the random player where there can be one.
"""

from envs.agentgym.world import AgentGym

__all__ = ["AgentGym"]
