"""The limits of the service: those of all clients together, and those of each.

A client is known by its address. Behind a proxy on this machine that is the address that the proxy passes on as
`X-Forwarded-For`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

MOST_CLIENTS = 4096
"""Clients whose requests are remembered at once; above that the one that asked for nothing for longest is forgotten."""


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of the service. Raises ValueError for a limit that is not above 0."""

    episodes: int = 1024
    """Maximum number of open episodes."""
    lease_seconds: float = 600.0
    """Seconds without a request after which an episode is freed: longer than a policy takes for one reply."""
    call_seconds: float = 300.0
    """Time limit of one call of a world, in seconds; after it the episode is lost."""
    body_bytes: int = 1_048_576
    """Maximum size of a request's body."""
    connections: int = 2048
    """Maximum number of open connections: a client has one for each episode that sends a request at the same time."""
    request_seconds: float = 20.0
    """Time limit, in seconds, for a request's head and then for its body; a slower request is refused.

    A client that
    leaves a reply unread for that long is disconnected.
    """
    client_episodes: int | None = None
    """Maximum number of open episodes of one client. None: no limit but that of all."""
    client_requests: float | None = None
    """Maximum number of requests of one client per second; as many may come at once. None: no limit."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0; found {value}")

    @property
    def description(self) -> str:
        """The limits in words, for those who write a client."""
        shares = [
            f"{self.client_episodes} open episodes" if self.client_episodes is not None else "",
            f"{self.client_requests:g} requests per second" if self.client_requests is not None else "",
        ]
        client_limits = " and ".join(filter(None, shares))
        return (
            f"At most {self.episodes} episodes and {self.connections} connections may be open, and a body has at most "
            f"{self.body_bytes} bytes. An episode is freed when nothing is asked of it for {self.lease_seconds:g} s. "
            + (f"Each client, known by its address, has at most {client_limits}. " if client_limits else "")
            + "What exceeds a limit on episodes or requests is answered 429 and a sentence, with `Retry-After`."
        )


class RequestRates:
    """Who may send a request now: a bucket for each client, refilled at a rate, of which every request takes one.

    A bucket holds what is refilled in a second, and at least one request.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._most = max(per_second, 1.0)
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def seconds_until_allowed(self, client: str, *, owe: bool = False) -> float:
        """0 if the request is allowed, which takes it from the bucket; else the seconds after which it would be.

        With `owe` it is taken in any case: the caller waits for so long, and those after it wait for longer.
        """
        now = self._clock()
        tokens, then = self._tokens.get(client, (self._most, now))
        tokens = min(tokens + (now - then) * self._per_second, self._most)
        allowed = tokens >= 1.0
        self._tokens[client] = (tokens - 1.0 if allowed or owe else tokens, now)
        self._tokens.move_to_end(client)
        if len(self._tokens) > MOST_CLIENTS:
            self._tokens.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self._per_second


def client_of(scope: Scope) -> str:
    """The address of the client of a request; empty where there is none."""
    client = scope.get("client")
    return str(client[0]) if client else ""
