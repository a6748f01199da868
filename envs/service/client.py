"""Requests to the service, over connections that all episodes of a process share, and what is done when one fails.

Every request is safe to send again: a creation bears a key, a step a number, and the others change nothing. So what
fails on the way, or is refused for the moment, is sent again, after waits that are always the same. How often that
happens changes how long an episode takes and nothing else: what is sampled depends on no clock (see
`turnwise.agent.loop`). When the attempts are spent, or the server says that the episode is lost, the call raises, and
the agent's host plays the episode again on a fresh one.
"""

from __future__ import annotations

import os
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from envs.service.reasons import LOST
from envs.service.schema import PREFIX, ErrorReply, Fault, ServiceReply

Answer = TypeVar("Answer", bound=ServiceReply)

PASSING = frozenset({429, 502, 503, 504})
"""Statuses of a server that is full, starting, or behind a gateway: unless the episode is lost, it may be well soon."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
IDLE_SECONDS = 60.0
"""A connection that was not used for so long is closed: well before the server would."""


class ServiceFault(RuntimeError):
    """The service could not be reached, or refuses, or answered what cannot be read: the episode is missing data."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The reason that the service gave; empty where it gave none."""


class ServiceClient:
    """A service at an address. Any number of threads may share it; a process that was forked off connects anew.

    `seconds`: how long each attempt may wait to connect, and for the answer. `retries`: how often a request is sent
    again. `token_variable`: the environment variable that holds the token, if the server wants one. `transport`: makes
    what requests travel over on one connection, unless it is HTTP. `first_wait`: seconds before the first repetition;
    each wait is twice the one before.
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float,
        retries: int,
        token_variable: str,
        transport: Callable[[], httpx.BaseTransport] | None = None,
        first_wait: float = FIRST_WAIT_SECONDS,
    ) -> None:
        self._url = url + PREFIX
        self._seconds, self._retries = seconds, retries
        self._token_variable, self._transport = token_variable, transport
        self._first_wait = first_wait
        self._process = os.getpid()
        # One httpx client for each connection: the pool of one client looks at all its connections at every request,
        # under a lock. The one that was used last is used first, so that there are as many as were ever needed at once.
        self._idle: deque[httpx.Client] = deque()

    def get(self, path: str, expected: type[Answer], *, seconds: float | None = None, **query: str | int) -> Answer:
        """The reply to a question; `seconds` where it may take longer. Raises ServiceFault, here and below."""
        timeout = self._seconds if seconds is None else max(seconds, self._seconds)
        return self._ask("GET", path, expected, params=query, timeout=timeout)

    def post(self, path: str, expected: type[Answer], request: BaseModel | None = None) -> Answer:
        """The reply to a request."""
        content = None if request is None else request.model_dump_json().encode()
        return self._ask("POST", path, expected, content=content)

    def delete(self, path: str, expected: type[Answer]) -> Answer:
        """The reply to a request that frees something."""
        return self._ask("DELETE", path, expected)

    def _ask(self, method: str, path: str, expected: type[Answer], **content: Any) -> Answer:
        place = f"{method} {self._url}{path}"
        response = self._answered(place, partial(self._send, method, self._url + path, **content))
        if response.status_code != 200:
            fault = _fault(response)
            raise ServiceFault(
                f"{place} must answer 200; found {response.status_code}: {fault.message or fault.code}", fault.code
            )
        try:
            return expected.model_validate_json(response.content)
        except ValidationError as error:
            raise ServiceFault(f"{place} must answer as the schema says; {error}") from error

    def _answered(self, place: str, send: Callable[[], httpx.Response]) -> httpx.Response:
        """The first answer that is not a passing fault, or the last of all. Raises ServiceFault where none came."""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(min(self._first_wait * 2 ** (attempt - 1), LONGEST_WAIT_SECONDS))
            last = attempt == self._retries
            try:
                response = send()
            except httpx.HTTPError as error:
                if last:
                    raise ServiceFault(
                        f"{place} must be answered; found {type(error).__name__}: {error}, {attempt + 1} times"
                    ) from error
                continue
            if last or response.status_code not in PASSING or _fault(response).code in LOST:
                return response
        raise AssertionError("retries must be at least 0")

    def _send(self, method: str, url: str, **content: Any) -> httpx.Response:
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), deque()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connected()
        try:
            return connection.request(method, url, **content)
        finally:
            self._idle.append(connection)

    def _connected(self) -> httpx.Client:
        headers = [(b"Content-Type", b"application/json")]
        if token := os.environ.get(self._token_variable):
            headers.append((b"Authorization", f"Bearer {token}".encode()))
        return httpx.Client(
            headers=headers,
            timeout=self._seconds,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_SECONDS),
            transport=self._transport() if self._transport is not None else None,
            verify=_certificates(),
            trust_env=False,  # a service is a machine of one's own, behind no proxy
        )


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than many requests."""
    return ssl.create_default_context()


@cache
def shared_client(url: str, seconds: float, retries: int, token_variable: str) -> ServiceClient:
    """The one client of this process for these settings."""
    return ServiceClient(url, seconds=seconds, retries=retries, token_variable=token_variable)


def _fault(response: httpx.Response) -> Fault:
    """What the service says is wrong; of an answer that is not the service's, its beginning."""
    try:
        return ErrorReply.model_validate_json(response.content).error
    except ValidationError:
        return Fault(code="", message=response.text[:200])
