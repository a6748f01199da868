"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass


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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name} must be above 0; found {value}")
