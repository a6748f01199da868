"""Checks before the application: the accepted host names, whose pages ask, the token, and the limits on a body.

The handshake of a WebSocket is checked like any other request, and refused with the same answers.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envs.service.limits import RequestRates, client_of
from envs.service.reasons import STATUS, Reason, Refusal
from envs.service.schema import PREFIX, ErrorReply, Fault

OPEN_TO_ALL = f"{PREFIX}/health"
"""The route that needs no token: it says only that the server is there."""


def refused(refusal: Refusal, status: int | None = None) -> Response:
    """HTTP response that reports a refusal."""
    body = ErrorReply(error=Fault(code=refusal.reason, message=refusal.message))
    headers = {
        Reason.UNAUTHORISED: {"WWW-Authenticate": "Bearer"},
        Reason.TOO_MANY_EPISODES: {"Retry-After": "1"},
        Reason.TOO_MANY_REQUESTS: {"Retry-After": "1"},
        Reason.TOO_MANY_CONNECTIONS: {"Retry-After": "1"},
    }.get(refusal.reason)
    return Response(
        body.model_dump_json(), STATUS[refusal.reason] if status is None else status, headers, "application/json"
    )


def require_safe(host: str, token: str | None) -> None:
    """Raise ValueError for an empty token, and for a host that other machines can reach if there is no token."""
    if token == "":
        raise ValueError("a token must hold at least one character; found an empty one")
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"host must be a loopback address such as 127.0.0.1 while there is no token; found {host!r}: whoever "
            "reaches it can play, so give the server a token"
        )


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class OwnHost:
    """Passes only requests whose Host header names this server.

    A web page of an attacker whose name points at this machine (DNS rebinding) could request whatever its browser can
    reach, and read the replies; but its name is then in the Host header. A server accepts localhost and loopback
    addresses, the host that it is bound to, and the names that it was given; bound to all addresses, it also accepts
    every address, but no further name.
    """

    def __init__(self, app: ASGIApp, host: str, others: Collection[str]) -> None:
        self._app = app
        self._names = {host.lower(), *(name.lower() for name in others)}
        address = _address(host)
        self._any_address = host == "" or (address is not None and address.is_unspecified)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan" or self._is_own(host := dict(scope["headers"]).get(b"host", b"")):
            return await self._app(scope, receive, send)
        message = (
            "the Host header must name this server, by an address of it or a name that it was started with "
            f"(turnwise serve --allow-host); found {host.decode('latin-1')!r}"
        )
        return await refused(Refusal(Reason.WRONG_HOST, message))(scope, receive, send)

    def _is_own(self, host: bytes) -> bool:
        try:
            name = urlsplit(f"//{host.decode('ascii')}").hostname
        except ValueError:  # characters that no host has, or an unclosed bracket
            return False
        if not name:
            return False
        return name in self._names or _is_loopback(name) or (self._any_address and _address(name) is not None)


class OwnOrigin:
    """Passes no request that a web page of another server sends.

    A browser lets a page open a WebSocket to any address, and read what comes back; and it sends plain requests there,
    too. It says in the Origin header whose page that is. Clients that are no browser send none.
    """

    def __init__(self, app: ASGIApp, others: Collection[str] = ()) -> None:
        """`others` are origins whose pages may, too."""
        self._app, self._others = app, [each.encode() for each in others]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        headers = dict(scope.get("headers", ()))
        origin, own = headers.get(b"origin"), headers.get(b"host", b"").lower()
        if origin is None or origin in self._others or origin.lower().partition(b"://")[2] == own:
            return await self._app(scope, receive, send)
        message = (
            f"only this server's own pages may use it from a browser; found the origin {origin.decode('latin-1')!r}"
        )
        return await refused(Refusal(Reason.WRONG_ORIGIN, message))(scope, receive, send)


class ClientRate:
    """Passes as many requests of each client as it may send.

    A message of a session waits for its turn instead: clients of sessions take a refusal for the end of an episode.
    """

    def __init__(self, app: ASGIApp, rates: RequestRates, per_second: float) -> None:
        self._app, self._rates, self._per_second = app, rates, per_second

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        client = client_of(scope)
        if self._rates.seconds_until_allowed(client):
            message = f"a client may send at most {self._per_second:g} requests per second: try again in a moment"
            return await refused(Refusal(Reason.TOO_MANY_REQUESTS, message))(scope, receive, send)

        async def in_turn() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                await asyncio.sleep(self._rates.seconds_until_allowed(client, owe=True))
            return message

        return await self._app(scope, in_turn if scope["type"] == "websocket" else receive, send)


class Authorisation:
    """Passes only requests with the token, compared in constant time so that timing reveals nothing of it.

    A client that can be given an address but no header, such as AgentGym's, sends the token as the password of the
    address, `http://any:TOKEN@host`, which arrives as basic authentication.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan" or self._expected is None or scope["path"] == OPEN_TO_ALL:
            return await self._app(scope, receive, send)
        header = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(_bearer(header), self._expected):
            return await self._app(scope, receive, send)
        message = "the request must have the header `Authorization: Bearer TOKEN` with the server's token"
        return await refused(Refusal(Reason.UNAUTHORISED, message))(scope, receive, send)


def _bearer(header: bytes) -> bytes:
    """An Authorization header as one with a bearer token, if it is basic authentication; else as it is."""
    scheme, _, encoded = header.partition(b" ")
    if scheme != b"Basic":
        return header
    try:
        _, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
    except ValueError:
        return header
    return b"Bearer " + password if colon else header


class BodyLimit:
    """Reads a body before the request is passed on.

    Refuses a slow body, and one that is too large without reading all of it.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, seconds: float) -> None:
        self._app, self._most_bytes, self._seconds = app, most_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            refusal = Refusal(Reason.REQUEST_TOO_SLOW, f"a body must arrive within {self._seconds:g} s")
            return await refused(refusal)(scope, receive, send)
        except Refusal as refusal:
            return await refused(refusal)(scope, receive, send)
        if body is None:
            return None
        unread = [body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        return await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client disconnected. Raises Refusal for one that is too large."""
        body = bytearray()
        more = True
        while more and max(len(body), _announced(scope)) <= self._most_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if more or len(body) > self._most_bytes:
            raise Refusal(Reason.BODY_TOO_LARGE, f"a body must have at most {self._most_bytes} bytes")
        return bytes(body)


def _announced(scope: Scope) -> int:
    """The length in the Content-Length header; 0 without one."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else 0
