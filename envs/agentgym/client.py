"""HTTP client for one AgentGym server, which turns every way of reporting an error into an exception.

AgentGym's servers report their own errors with HTTP 200 and `{"error": ...}`, some with HTTP 500, and one with an
observation that is the name of an exception. Each of these is missing data and raises ServerFault: scored as a reward
of 0, it would be trained on. The servers do not distinguish their own errors from errors that the policy's text caused,
so this client cannot either.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import httpx

from turnwise.world import finite_number

logger = logging.getLogger(__name__)

NO_SUCH_ROUTE = (404, 405)


class ServerFault(RuntimeError):
    """Raised when the server cannot be reached, fails, or sends an unreadable reply: the episode is missing data."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status if it was not 200, else None."""


class _ServersWithoutClose:
    """Addresses of servers without a `close` route.

    Kept per process, because a run may construct the same world many times.
    """

    def __init__(self) -> None:
        self._addresses: set[str] = set()
        self._lock = threading.Lock()

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    def add(self, address: str) -> None:
        """Remember an address and log a warning, once per address."""
        with self._lock:
            if address in self._addresses:
                return
            self._addresses.add(address)
        logger.warning(
            "the server at %s has no route `close`: it keeps every environment until it ends, and is not asked again",
            address,
        )


_without_close = _ServersWithoutClose()


class AgentGymClient:
    """Client for the server at one address; its pooled connections may be shared by any number of threads.

    `seconds` is the timeout of a request.
    """

    def __init__(self, address: str, seconds: float) -> None:
        self._address = address
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        # A server of environments is a machine of one's own, not behind a proxy.
        self._http = httpx.Client(base_url=address, timeout=seconds, limits=unlimited, trust_env=False)

    def post(self, route: str, body: dict[str, Any]) -> Any:
        """Reply to a request that may change state. Sent once and never retried: a retry might play a step twice."""
        return self._reply("POST", route, json=body)

    def get(self, route: str, query: dict[str, Any]) -> Any:
        """Reply to a read-only request."""
        return self._reply("GET", route, params=query)

    def close(self, body: dict[str, Any]) -> None:
        """Free a remote environment.

        A server without this route, such as ALFWorld's, is logged once and not asked again.
        """
        if self._address in _without_close:
            return
        try:
            self.post("close", body)
        except ServerFault as fault:
            if fault.status not in NO_SUCH_ROUTE:
                raise
            _without_close.add(self._address)

    def _reply(self, method: str, route: str, **content: Any) -> Any:
        place = f"{method} {self._address}/{route}"
        try:
            response = self._http.request(method, f"/{route}", **content)
        except httpx.HTTPError as error:
            raise ServerFault(f"{place} must be answered; found {type(error).__name__}: {error}") from error
        if response.status_code != 200:
            message = f"{place} must answer 200; found {response.status_code}: {response.text[:200]}"
            raise ServerFault(message, response.status_code)
        try:
            reply = response.json()
        except ValueError as error:
            raise ServerFault(f"{place} must answer JSON; found {response.text[:200]!r}") from error
        if isinstance(reply, dict) and "error" in reply:
            raise ServerFault(f"{place} failed: {reply['error']}")
        return reply


def text(reply: Any, name: str) -> str:
    """Value of a field that must hold text. Raises ServerFault otherwise, as do the functions below."""
    value = _field(reply, name)
    if not isinstance(value, str):
        raise ServerFault(f"the field {name!r} must be a text; found {value!r}")
    return value


def number(reply: Any, name: str) -> float:
    """Value of a field that must hold a number. Raises ContractError where the field is there and holds none."""
    return finite_number(f"the field {name!r} of a server's reply", _field(reply, name))


def flag(reply: Any, name: str) -> bool:
    """Value of a field that must hold true or false."""
    value = _field(reply, name)
    if not isinstance(value, bool):
        raise ServerFault(f"the field {name!r} must be true or false; found {value!r}")
    return value


def texts(reply: Any, name: str) -> tuple[str, ...]:
    """Value of a field that must hold a list of texts."""
    value = _field(reply, name)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ServerFault(f"the field {name!r} must be a list of texts; found {value!r}")
    return tuple(value)


def handle(reply: Any, name: str) -> int:
    """Number of a new environment: the field `name` of the reply, or the reply itself where `name` is empty."""
    value = _field(reply, name) if name else reply
    if isinstance(value, bool) or not isinstance(value, int):
        raise ServerFault(f"the number of a new environment must be a whole number; found {value!r}")
    return value


def _field(reply: Any, name: str) -> Any:
    if not isinstance(reply, dict) or name not in reply:
        actual = f"the fields {', '.join(map(str, reply))}" if isinstance(reply, dict) else repr(reply)
        raise ServerFault(f"a reply must have the field {name!r}; found {actual}")
    return reply[name]
