"""The world `mcp`: questions to be answered with the tools of an MCP server (Model Context Protocol).

* `questions`: the file of questions, and when an answer is right.
* `sessions`: connections to the server, which is asked from ordinary threads.
* `world`: the world; `episode`: one question.
"""

from envs.tool_server.world import ToolServer

__all__ = ["ToolServer"]
