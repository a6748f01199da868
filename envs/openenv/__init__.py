"""The world `openenv`: any environment server of OpenEnv, played by its address.

* `sessions`: what a server says of itself over HTTP, and a session over its WebSocket.
* `actions`: from a policy's text to the object that the server takes.
* `episode`: one episode; `world`: seeds as tasks.
"""

from envs.openenv.world import OpenEnv

__all__ = ["OpenEnv"]
