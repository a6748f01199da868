"""Bounds on the number of connections, and on how slowly each may send a request or read a reply.

Uvicorn waits for ever for the end of a request's head, however slowly it arrives, and takes any number of connections;
a client that opens many and sends a byte now and then ("slow loris") would block all others, and so would one that
reads none of its replies. What is refused before there is a request is answered in the form of every other refusal. The
time limit of a body is in `guards.BodyLimit`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from envs.service.guards import refused
from envs.service.reasons import Reason, Refusal

MOST_HEAD_BYTES = 65_536


def bounded_connection(most: int, seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol class, limited to `most` connections at once.

    A request's head must arrive within `seconds`. A client that leaves a reply unread for that long is disconnected.
    """

    class BoundedConnection(_Connection):
        most_connections = most
        seconds_to_wait = seconds

    return BoundedConnection


def bounded_session(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol class of a WebSocket; a client that leaves messages unread for `seconds` is disconnected."""

    class BoundedSession(_Session):
        seconds_to_wait = seconds

    return BoundedSession


class _ReadInTime:
    """Disconnects a client that leaves what it was sent unread. Goes before a protocol class of uvicorn's."""

    seconds_to_wait: float
    _reading_deadline: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self.resume_writing()
        super().connection_lost(exc)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """Start the deadline for the client to read. Called by the transport, like `resume_writing`."""
        super().pause_writing()  # type: ignore[misc]
        uvicorns: Any = self
        self._reading_deadline = uvicorns.loop.call_later(self.seconds_to_wait, uvicorns.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the deadline: the client has read."""
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
            self._reading_deadline = None
        super().resume_writing()  # type: ignore[misc]


class _Session(_ReadInTime, WebSocketsSansIOProtocol):
    """Uses uvicorn's attributes `transport` and `loop`. Its handshake has passed through a `_Connection` before."""

    def handle_connect(self, event: Any) -> None:
        """Begin the session, or refuse what asks for a WebSocket and is no handshake. Called by uvicorn."""
        if self.conn.accept(event).status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            super().handle_connect(event)
        else:
            self._refuse_handshake()

    def data_received(self, data: bytes) -> None:
        """Process received bytes: the head first, which comes as a whole."""
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():  # it could not be read
            self._refuse_handshake()

    async def send(self, message: Any) -> None:
        """Send what the application says. A refused handshake is complete, for which uvicorn would log an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def _refuse_handshake(self) -> None:
        message = "a request with `Upgrade: websocket` must be the handshake of a WebSocket, version 13"
        self.handshake_complete = self.close_sent = True
        self.transport.write(_refusal_bytes(Refusal(Reason.INVALID_REQUEST, message), 400))
        self.transport.close()


class _Connection(_ReadInTime, AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """Uses uvicorn's attributes `connections`, `transport`, `loop`, and `cycle`, that of the last complete head."""

    most_connections: int

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or refuse it if the limit is reached."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            message = f"at most {self.most_connections} connections may be open, and are: try again in a moment"
            self._refuse(Refusal(Reason.TOO_MANY_CONNECTIONS, message))
        else:
            self._await_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        self._forget_the_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, of a head or of a body."""
        if self.transport.is_closing():
            return
        before = self.cycle
        if self._deadline is None and (before is None or before.response_complete):
            self._await_a_head()
        super().data_received(data)
        if self.cycle is not before:
            self._forget_the_deadline()
            self._head_bytes = 0
        elif self._deadline is not None and not self._rest_of_a_body():
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(
                    Refusal(Reason.HEAD_TOO_LARGE, f"a request's head must have at most {MOST_HEAD_BYTES} bytes")
                )

    def handle_websocket_upgrade(self, *event: Any) -> None:
        """Leave the connection to a WebSocket, whose head has arrived. Called by uvicorn."""
        self._forget_the_deadline()
        super().handle_websocket_upgrade(*event)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP. Called by uvicorn."""
        self._refuse(Refusal(Reason.INVALID_REQUEST, msg), 400)

    def _await_a_head(self) -> None:
        self._deadline = self.loop.call_later(self.seconds_to_wait, self._give_up)

    def _forget_the_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._head_bytes:
            message = f"a request's head must arrive within {self.seconds_to_wait:g} s"
            self._refuse(Refusal(Reason.REQUEST_TOO_SLOW, message))
        else:
            self.transport.close()

    def _rest_of_a_body(self) -> bool:
        """Whether the bytes belong to a request that was answered before its body was read completely."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def _refuse(self, refusal: Refusal, status: int | None = None) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(_refusal_bytes(refusal, status))
        self.transport.close()


def _refusal_bytes(refusal: Refusal, status: int | None) -> bytes:
    """A refusal as the bytes of an answer, after which the connection is closed."""
    answer = refused(refusal, status)
    lines = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)])
