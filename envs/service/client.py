"""Requests to the service, over connections that all episodes of a process share, and retries when one fails.

Every request is safe to repeat: a creation carries a key, a step a number, and the others change nothing. So a request
that fails on the way, or is refused for the moment, is repeated after fixed waits. The number of repetitions changes
how long an episode takes and nothing else: sampling depends on no clock (see `turnwise.agent.loop`). When the attempts
are spent, or the server says that the episode is lost, the call raises, and the agent's host plays the episode again in
a fresh environment.
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

from envs.service.reasons import LOST, Reason
from envs.service.schema import PREFIX, ErrorReply, Fault, ServiceReply

Answer = TypeVar("Answer", bound=ServiceReply)

PASSING = frozenset({429, 502, 503, 504})
"""Statuses of a server that is full, starting, or behind a gateway: worth a retry unless the episode is lost."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
IDLE_SECONDS = 60.0
"""Seconds after which an unused connection is closed: well before the server would close it."""


class ServiceFault(RuntimeError):
    """Raised when the service cannot be reached, refuses, or sends an unreadable reply: the episode is missing data."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The service's reason code; empty if it gave none."""


class ServiceClient:
    """Client for the service at an address. Any number of threads may share it; a forked process connects again.

    `seconds`: timeout of each attempt, to connect and for the reply. `retries`: how often a request is repeated.
    `token_variable`: the environment variable that holds the token, if the server wants one. `transport`: makes the
    httpx transport of a connection, by default HTTP. `first_wait`: seconds before the first repetition; each wait is
    twice the one before.
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
        # One httpx client per connection: the pool of a single client scans all its connections at every request, under
        # a lock. The most recently used one is used first, so there are only as many as were ever needed at once.
        self._idle: deque[httpx.Client] = deque()

    def get(self, path: str, expected: type[Answer], *, seconds: float | None = None, **query: str | int) -> Answer:
        """Reply to a read-only request. Raises ServiceFault, as do the methods below.

        `seconds` raises the timeout where the reply may take longer.
        """
        timeout = self._seconds if seconds is None else max(seconds, self._seconds)
        return self._ask("GET", path, expected, params=query, timeout=timeout)

    def post(self, path: str, expected: type[Answer], request: BaseModel | None = None) -> Answer:
        """Reply to a request that may change something."""
        content = None if request is None else request.model_dump_json().encode()
        return self._ask("POST", path, expected, content=content)

    def delete(self, path: str, expected: type[Answer]) -> Answer:
        """Reply to a request that frees something."""
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
            raise _unlike_the_schema(place, error) from error

    def _answered(self, place: str, send: Callable[[], httpx.Response]) -> httpx.Response:
        """The first reply that is not worth a retry, or the last one. Raises ServiceFault if there was none."""
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
            trust_env=False,  # a service is a machine of one's own, not behind a proxy
        )


@cache
def _certificates() -> ssl.SSLContext:
    """TLS settings, cached because reading the certificates takes longer than many requests."""
    return ssl.create_default_context()


@cache
def shared_client(url: str, seconds: float, retries: int, token_variable: str) -> ServiceClient:
    """The client that this process shares for these settings."""
    return ServiceClient(url, seconds=seconds, retries=retries, token_variable=token_variable)


def _unlike_the_schema(place: str, error: ValidationError) -> ServiceFault:
    """What is wrong with a reply: JSON of another form breaks the contract; what is no JSON was cut off on its way."""
    first_error = error.errors()[0]
    if first_error["type"] == "json_invalid":
        return ServiceFault(f"{place} must answer with JSON; {first_error['msg']}")
    where = ".".join(map(str, first_error["loc"])) or "the reply"
    actual = f"{first_error['input']!r:.80}"
    message = f"{place} must answer as the schema says; {where}: {first_error['msg'].lower()}; found {actual}"
    return ServiceFault(message, Reason.CONTRACT_BROKEN)


def _fault(response: httpx.Response) -> Fault:
    """The error that the service reports; for a reply that is not the service's, its beginning."""
    try:
        return ErrorReply.model_validate_json(response.content).error
    except ValidationError:
        return Fault(code="", message=response.text[:200])
