"""What stands before the application: the token, and the limit on the size of a body."""

from __future__ import annotations

import hmac
import ipaddress

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envs.service.reasons import STATUS, Reason, Refusal
from envs.service.schema import PREFIX, ErrorReply, Fault

OPEN_TO_ALL = f"{PREFIX}/health"
"""Answered without a token: it says nothing but that the server is there."""


def refused(refusal: Refusal, status: int | None = None) -> Response:
    """The answer that tells why there is none."""
    body = ErrorReply(error=Fault(code=refusal.reason, message=refusal.message))
    headers = {
        Reason.UNAUTHORISED: {"WWW-Authenticate": "Bearer"},
        Reason.TOO_MANY_EPISODES: {"Retry-After": "1"},
    }.get(refusal.reason)
    return Response(
        body.model_dump_json(), STATUS[refusal.reason] if status is None else status, headers, "application/json"
    )


def require_safe(host: str, token: str | None) -> None:
    """Raise ValueError for a host that others can reach, where no token keeps them out."""
    if token == "":
        raise ValueError("a token must hold at least one character; found an empty one")
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"host must be a loopback address such as 127.0.0.1 while there is no token; found {host!r}: whoever "
            "reaches it can play, so give the server a token"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Authorisation:
    """Lets requests pass that bear the token. Compared in a time that does not tell how much of it was right."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or self._expected is None or scope["path"] == OPEN_TO_ALL:
            return await self._app(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, self._expected):
            return await self._app(scope, receive, send)
        message = "the request must have the header `Authorization: Bearer TOKEN` with the server's token"
        return await refused(Refusal(Reason.UNAUTHORISED, message))(scope, receive, send)


class BodyLimit:
    """Reads a body before it is passed on, and refuses one that is too large without reading all of it."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app, self._most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = bytearray()
        more = True
        while more and max(len(body), _announced(scope)) <= self._most_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if more or len(body) > self._most_bytes:
            refusal = Refusal(Reason.BODY_TOO_LARGE, f"a body must have at most {self._most_bytes} bytes")
            return await refused(refusal)(scope, receive, send)
        unread = [bytes(body)]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        return await self._app(scope, replay, send)


def _announced(scope: Scope) -> int:
    """The length that the header announces, if it does."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else 0
