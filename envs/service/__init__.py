"""Worlds over HTTP: the server of `turnwise serve`, and the world `remote` that plays on it.

What is said: `schema` and `generator_state` (requests and replies), `reasons` (why there is no reply), `plain` (a
world's answers as JSON can hold them).

The server:

* `offers`: the worlds that a server is started with.
* `homes`: what is needed of the place where environments live; `threads` and `processes` are the two that there are,
  with `worker` on the far side of a process and `orders` between.
* `episodes`: leases, limits, step numbers, losses.
* `listing`: what a world says of its tasks.
* `routes`, `guards`, `connections`, `metrics`, `application`, `server`: the routes, what stands before them, what is
  counted, and how it is put together and run.

The client: `client` (connections, and what is sent again), `world` (the world and its environments).
"""

from envs.service.world import RemoteWorld

__all__ = ["RemoteWorld"]
