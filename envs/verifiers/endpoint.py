"""A loopback endpoint of chat completions that hands each request to an episode, and answers with the episode's action.

A rollout of verifiers asks a model; a world is asked. `Exchange` stands between the two: the rollout's request waits in
its handler's thread until `step` brings the reply.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

CALL = re.compile(r"\s*([\w.-]+)\[(.*)\]\s*", re.DOTALL)
CLOSED = 400
"""Status of requests of an episode that is closed: no client sends such a request again."""


@dataclass(frozen=True)
class Request:
    """What the rollout asks of its model: the whole conversation, and the tools that it may call."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Scored:
    """The end of a rollout: its reward and the numbers reported with it, or what went wrong."""

    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    truncated: bool = False
    failure: str = ""


class Exchange:
    """The requests and replies of one rollout."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.messages: SimpleQueue[Request | Scored] = SimpleQueue()
        self.replies: SimpleQueue[str | None] = SimpleQueue()
        """Actions; None closes the rollout."""

    @property
    def url(self) -> str:
        """The base address that this rollout's client is given."""
        return f"http://127.0.0.1:{_server().server_port}/{self.name}"


_open: dict[str, Exchange] = {}


def open_exchange() -> Exchange:
    """A new exchange, known to the endpoint until `forget`."""
    exchange = Exchange()
    _open[exchange.name] = exchange
    return exchange


def forget(exchange: Exchange) -> None:
    """Refuse further requests of this rollout, and the one that waits."""
    _open.pop(exchange.name, None)
    exchange.replies.put(None)


def assistant_message(action: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reply that an action stands for: a call where it is `TOOL[{...}]` of a tool that there is, else text."""
    call = CALL.fullmatch(action)
    if call is None or call[1] not in {tool["function"]["name"] for tool in tools}:
        # A space for nothing: version 0.1 takes an empty reply for a failure of the model, and it is a policy's reply.
        return {"role": "assistant", "content": action or " "}
    function = {"name": call[1], "arguments": call[2] or "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        exchange = _open.get(self.path.split("/")[1])
        action = None
        if exchange is not None:
            exchange.messages.put(Request(body["messages"], body.get("tools") or ()))
            action = exchange.replies.get()
        if action is None:
            return self._send(CLOSED, {"error": {"message": "the episode is closed", "type": "closed", "code": None}})
        message = assistant_message(action, body.get("tools") or ())
        ending = "tool_calls" if "tool_calls" in message else "stop"
        return self._send(
            200,
            {
                "id": f"chatcmpl-{secrets.token_hex(8)}",
                "object": "chat.completion",
                "created": 0,
                "model": "policy",
                "choices": [{"index": 0, "message": message, "finish_reason": ending, "logprobs": None}],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            },
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a rollout's requests are its own affair."""

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        text = json.dumps(content).encode()
        with contextlib.suppress(ConnectionError):  # the rollout of a closed episode no longer listens
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)


@cache
def _server() -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="verifiers endpoint", daemon=True).start()
    return server
