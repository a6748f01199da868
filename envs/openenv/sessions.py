"""An OpenEnv server, as a client sees it: its description over HTTP, and sessions over a WebSocket.

The protocol is that of openenv-core 0.3, whose package is not needed here. An episode is a session on `/ws`: each
message is an object with `type` and `data`, a `reset` or a `step`, and the reply is an `observation`, or an `error`
with a code. The server's routes `/reset` and `/step` make an environment for each request and throw it away, so no
episode can be played over HTTP, where a server is only asked what it is: `/metadata` and `/schema`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from turnwise.world import finite_number

MOST_MESSAGE_BYTES = 100 * 1024 * 1024
"""As in OpenEnv's own client: an observation may be a screenshot."""


class OpenEnvFault(RuntimeError):
    """Raised when the server cannot be reached, fails, or sends what cannot be read: the episode is missing data."""

    def __init__(self, message: str, code: str = "", fields: Collection[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        """The server's code, such as `VALIDATION_ERROR`; empty if it gave none."""
        self.fields = frozenset(fields)
        """What the server found wrong, by the first part of each place."""


@dataclass(frozen=True)
class PlayReply:
    """A server's reply to `reset` or `step`."""

    observation: Mapping[str, Any]
    reward: float
    """0 where the server says none."""
    done: bool


@dataclass(frozen=True)
class ServerDescription:
    """What a server says of itself: its name, what it is, and the JSON schemas of its actions and observations."""

    name: str
    text: str
    action: Mapping[str, Any]
    observation: Mapping[str, Any]


@cache
def description(url: str, seconds: float, token_variable: str) -> ServerDescription:
    """A server's description, asked for once per process. Raises OpenEnvFault."""
    metadata, schema = (_got(f"{url}/{route}", seconds, token_variable) for route in ("metadata", "schema"))
    action, observation = schema.get("action"), schema.get("observation")
    if not isinstance(action, dict) or not isinstance(observation, dict):
        raise OpenEnvFault(f"{url}/schema must have the schemas of an action and an observation; found {schema!r}")
    return ServerDescription(str(metadata.get("name", "")), str(metadata.get("description", "")), action, observation)


@cache
def tools(url: str, seconds: float, token_variable: str) -> tuple[Mapping[str, Any], ...]:
    """The tools of an environment whose actions are tool calls, asked for once per process. Raises OpenEnvFault."""
    session = OpenEnvSession(url, seconds, token_variable)
    try:
        tool_list = session.step({"type": "list_tools"}).observation.get("tools")
    finally:
        session.close()
    if not isinstance(tool_list, list) or not all(isinstance(tool, dict) and "name" in tool for tool in tool_list):
        raise OpenEnvFault(f"{url} must list its tools; found {str(tool_list)[:200]}")
    return tuple(tool_list)


class OpenEnvSession:
    """An open session, with an environment of its own on the server. Every method raises OpenEnvFault.

    `reset` and `step` raise ContractError for a reward that is no number.
    """

    def __init__(self, url: str, seconds: float, token_variable: str) -> None:
        self._address = f"ws{url.removeprefix('http')}/ws"
        self._seconds = seconds
        self._connection = self._connected(_headers(token_variable))

    def reset(self, arguments: Mapping[str, Any]) -> PlayReply:
        """Begin an episode. `arguments`: the seed, and what else the environment's `reset` takes."""
        return _read_reply(self._request("reset", arguments))

    def step(self, action: Mapping[str, Any]) -> PlayReply:
        """Play an action."""
        return _read_reply(self._request("step", action))

    def close(self) -> None:
        """End the session, and wait until the server has freed it. It is no error if the server has ended it already.

        A server frees a session after it has read the message `close`, and closes the connection then: to close it at
        once would leave a server that holds one session full for a moment.
        """
        with contextlib.suppress(OSError, WebSocketException):  # closed, or nothing said within the time limit
            self._connection.send(json.dumps({"type": "close"}))
            while True:
                self._connection.recv(timeout=self._seconds)
        self._connection.close()

    def _connected(self, headers: Mapping[str, str]) -> ClientConnection:
        try:
            return connect(
                self._address,
                additional_headers=headers,
                open_timeout=self._seconds,
                close_timeout=self._seconds,
                max_size=MOST_MESSAGE_BYTES,
                ping_interval=None,  # a server that is busy with a step may leave a ping unanswered
                proxy=None,  # a server is a machine of one's own, not behind a proxy
            )
        except (OSError, WebSocketException) as error:
            raise OpenEnvFault(f"{self._address} must open a session; found {type(error).__name__}: {error}") from error

    def _request(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        place = f"{kind} at {self._address}"
        try:
            with contextlib.suppress(ConnectionClosed):  # a server that is full says so, and closes, before it is asked
                self._connection.send(json.dumps({"type": kind, "data": data}))
            reply = json.loads(self._connection.recv(timeout=self._seconds))
        except TimeoutError as error:
            raise OpenEnvFault(f"{place} must be answered within {self._seconds:g} s; it was not") from error
        except (OSError, ValueError, WebSocketException) as error:
            raise OpenEnvFault(f"{place} must be answered; found {type(error).__name__}: {error}") from error
        reply_data = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(reply_data, dict) or reply.get("type") not in ("observation", "error"):
            raise OpenEnvFault(f"{place} must be answered with an observation; found {str(reply)[:200]}")
        if reply["type"] == "error":
            raise _fault(place, reply_data)
        return reply_data


def _fault(place: str, data: Mapping[str, Any]) -> OpenEnvFault:
    code, errors = str(data.get("code", "")), data.get("errors")
    problems = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    places = [[str(part) for part in each.get("loc", ())] for each in problems]
    details = "; ".join(f"{'.'.join(at)}: {each.get('msg')}" for at, each in zip(places, problems, strict=True))
    advice = (
        ": start the server with a `max_concurrent_envs` of at least the number of episodes that are played at once"
        if code == "CAPACITY_REACHED"
        else ""
    )
    message = f"{place} failed with {code or 'no code'}: {details or data.get('message')}{advice}"
    return OpenEnvFault(message, code, [at[0] for at in places if at])


def _read_reply(data: Mapping[str, Any]) -> PlayReply:
    observation, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
    if not isinstance(observation, dict) or not isinstance(done, bool):
        raise OpenEnvFault(f"a reply must have an observation and say if the episode is done; found {str(data)[:200]}")
    return PlayReply(
        observation, 0.0 if reward is None else finite_number("the reward of a server's reply", reward), done
    )


def _got(address: str, seconds: float, token_variable: str) -> Mapping[str, Any]:
    try:
        response = httpx.get(address, headers=_headers(token_variable), timeout=seconds, trust_env=False)
        response.raise_for_status()
        content = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise OpenEnvFault(f"{address} must be answered with JSON; found {type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise OpenEnvFault(f"{address} must be answered with an object; found {str(content)[:200]}")
    return content


def _headers(token_variable: str) -> dict[str, str]:
    token = os.environ.get(token_variable)
    return {"Authorization": f"Bearer {token}"} if token else {}
