"""Reasons why the service refuses a request or fails at one: a closed list that a client can act upon."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Value of `error.code` in every reply that is not a success."""

    UNAUTHORISED = "unauthorised"
    """The request has no token, or not the server's."""
    UNKNOWN_ROUTE = "unknown_route"
    """The address does not exist, or does not take this method."""
    UNKNOWN_WORLD = "unknown_world"
    """No world with this id is served: the server was started with other parameters, or has another version."""
    UNKNOWN_EPISODE = "unknown_episode"
    """The episode does not exist: it was closed, or its lease expired."""
    KEY_REUSED = "key_reused"
    """Another episode was created under this key."""
    RESET_OUT_OF_ORDER = "reset_out_of_order"
    """The episode must be reset before its first step, and cannot be reset after it."""
    STEP_OUT_OF_ORDER = "step_out_of_order"
    """The step's number is neither that of the last step, with the same action, nor the next."""
    WRONG_HOST = "wrong_host"
    """The Host header names another machine, or a name of this one that the server was not given."""
    WRONG_ORIGIN = "wrong_origin"
    """A web page of another server sent the request."""
    REQUEST_TOO_SLOW = "request_too_slow"
    """The request's head or body did not arrive in time."""
    HEAD_TOO_LARGE = "head_too_large"
    """The request's line and headers have more bytes than the server takes."""
    TOO_MANY_CONNECTIONS = "too_many_connections"
    """The limit on open connections is reached."""
    BODY_TOO_LARGE = "body_too_large"
    """The body has more bytes than the server takes."""
    INVALID_REQUEST = "invalid_request"
    """The request does not have the form that the schema describes."""
    TASK_REFUSED = "task_refused"
    """The world does not know the task, or has fewer tasks than were asked for."""
    TOO_MANY_EPISODES = "too_many_episodes"
    """The limit on open episodes is reached, of all clients or of this one."""
    TOO_MANY_REQUESTS = "too_many_requests"
    """The client sends more requests per second than it may."""
    WORLD_FAILED = "world_failed"
    """The world raised an exception: the episode is lost."""
    CONTRACT_BROKEN = "contract_broken"
    """The world answered what its contract does not allow, e.g. None as a reward: the episode is lost, and so would be
    every other one."""
    WORKER_DIED = "worker_died"
    """The process that held the episode has died: the episode is lost."""
    WORLD_HUNG = "world_hung"
    """The world did not answer in time: the episode is lost."""
    INTERNAL = "internal"
    """The service itself failed: a bug."""


STATUS: dict[Reason, int] = {
    Reason.UNAUTHORISED: 401,
    Reason.WRONG_ORIGIN: 403,
    Reason.UNKNOWN_ROUTE: 404,
    Reason.UNKNOWN_WORLD: 404,
    Reason.UNKNOWN_EPISODE: 404,
    Reason.KEY_REUSED: 409,
    Reason.RESET_OUT_OF_ORDER: 409,
    Reason.STEP_OUT_OF_ORDER: 409,
    Reason.REQUEST_TOO_SLOW: 408,
    Reason.BODY_TOO_LARGE: 413,
    Reason.WRONG_HOST: 421,
    Reason.INVALID_REQUEST: 422,
    Reason.TASK_REFUSED: 422,
    Reason.TOO_MANY_EPISODES: 429,
    Reason.TOO_MANY_REQUESTS: 429,
    Reason.HEAD_TOO_LARGE: 431,
    Reason.WORLD_FAILED: 500,
    Reason.CONTRACT_BROKEN: 500,
    Reason.INTERNAL: 500,
    Reason.TOO_MANY_CONNECTIONS: 503,
    Reason.WORKER_DIED: 503,
    Reason.WORLD_HUNG: 504,
}
"""HTTP status of each reason."""

LOST = frozenset({Reason.WORLD_FAILED, Reason.CONTRACT_BROKEN, Reason.WORKER_DIED, Reason.WORLD_HUNG})
"""Reasons after which the episode is gone: repeating the request gives the same reply."""


class Refusal(Exception):
    """A request is refused, or fails, for one of the reasons."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
