"""The world `agentgym`: any environment server of AgentGym (arXiv 2406.04151), played over its HTTP interface.

* `servers`: a table of the field names and quirks of each server.
* `client`: HTTP requests, and the errors that a server can report.
* `world`: item numbers as tasks, one remote environment per episode, and a random policy where the server lists the
  possible actions.
"""

from envs.agentgym.world import AgentGym

__all__ = ["AgentGym"]
