"""Worlds over HTTP: the server of `turnwise serve`, and the world `remote` that plays on it.

The protocol: `schema` and `generator_state` (requests and replies), `reasons` (why a request fails), `plain` (a world's
replies as values that JSON can hold).

The server:

* `offers`: the worlds that a server is started with, and their tasks.
* `homes`: the interface of the place where environments live; `threads` and `processes` are the two implementations,
  with `worker` on the far side of a process and `orders` as their protocol.
* `episodes`: leases, step numbers, losses; `limits`: those of all clients and of each.
* `agentgym`: the same episodes by AgentGym's protocol, for its clients and trainers.
* `openenv`: the same episodes by OpenEnv's protocol, in sessions on a WebSocket.
* `routes`, `guards`, `connections`, `metrics`, `application`, `server`: the routes, the checks before them, the
  metrics, and the assembly and start of the server.

The client: `client` (connections and retries), `world` (the world and its environments).
"""

from envs.service.world import RemoteWorld

__all__ = ["RemoteWorld"]
