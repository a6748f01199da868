"""Requests to one server, and the ways in which it says that it failed.

AgentGym's servers answer an error of theirs with HTTP 200 and `{"error": ...}`, some with HTTP 500, and one with an
observation that is the name of an exception. Each is missing data and is raised here: a reward of 0 would be trained
on. The servers cannot tell an error of theirs from one that the policy's text brought about; neither can this.
"""

from __future__ import annotations

from typing import Any

import httpx


class ServerFault(RuntimeError):
    """The server could not be reached, or failed, or answered what cannot be read: the episode is missing data."""


class Client:
    """A server at an address, over pooled connections that any number of threads may share."""

    def __init__(self, address: str, seconds: float) -> None:
        self._address = address
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        self._http = httpx.Client(base_url=address, timeout=seconds, limits=unlimited)

    def post(self, route: str, body: dict[str, Any]) -> Any:
        """The reply to a request that may change something. It is sent once: a second time might play a step twice."""
        return self._reply("POST", route, json=body)

    def get(self, route: str, query: dict[str, Any]) -> Any:
        """The reply to a question."""
        return self._reply("GET", route, params=query)

    def _reply(self, method: str, route: str, **content: Any) -> Any:
        place = f"{method} {self._address}/{route}"
        try:
            response = self._http.request(method, f"/{route}", **content)
        except httpx.HTTPError as error:
            raise ServerFault(f"{place} must be answered; found {type(error).__name__}: {error}") from error
        if response.status_code != 200:
            raise ServerFault(f"{place} must answer 200; found {response.status_code}: {response.text[:200]}")
        try:
            reply = response.json()
        except ValueError as error:
            raise ServerFault(f"{place} must answer JSON; found {response.text[:200]!r}") from error
        if isinstance(reply, dict) and "error" in reply:
            raise ServerFault(f"{place} failed: {reply['error']}")
        return reply


def text(reply: Any, name: str) -> str:
    """A field that must hold text. Raises ServerFault otherwise, here and below."""
    value = _field(reply, name)
    if not isinstance(value, str):
        raise ServerFault(f"the field {name!r} must be a text; found {value!r}")
    return value


def number(reply: Any, name: str) -> float:
    """A field that must hold a number."""
    value = _field(reply, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ServerFault(f"the field {name!r} must be a number; found {value!r}")
    return float(value)


def flag(reply: Any, name: str) -> bool:
    """A field that must hold true or false."""
    value = _field(reply, name)
    if not isinstance(value, bool):
        raise ServerFault(f"the field {name!r} must be true or false; found {value!r}")
    return value


def texts(reply: Any, name: str) -> tuple[str, ...]:
    """A field that must hold a list of texts."""
    value = _field(reply, name)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ServerFault(f"the field {name!r} must be a list of texts; found {value!r}")
    return tuple(value)


def handle(reply: Any, name: str) -> int:
    """The number of a new environment: the reply itself, or one of its fields."""
    value = _field(reply, name) if name else reply
    if isinstance(value, bool) or not isinstance(value, int):
        raise ServerFault(f"the number of a new environment must be a whole number; found {value!r}")
    return value


def _field(reply: Any, name: str) -> Any:
    if not isinstance(reply, dict) or name not in reply:
        found = f"the fields {', '.join(map(str, reply))}" if isinstance(reply, dict) else repr(reply)
        raise ServerFault(f"a reply must have the field {name!r}; found {found}")
    return reply[name]
