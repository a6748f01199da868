"""The application of the bundled Prefect server, for this machine and the server's own pages only.

Prefect's API asks for no password. Left as it is, any web page that the user visits could delete runs through the
browser: Prefect lets every origin in, and takes a name that an attacker has pointed at 127.0.0.1 for its own (DNS
rebinding). So a request must name this machine as its host, and one that a page sends must come from the server's own.

`flows.runtime.server` starts it: `uvicorn --factory flows.runtime.own_pages:application`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ORIGINS_VARIABLE = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"


def own_origins(port: int) -> str:
    """The origins of the pages that a server on this port serves, as Prefect's setting takes them."""
    return f"http://127.0.0.1:{port},http://localhost:{port}"


def application() -> ASGIApp:
    """Prefect's application behind the guard. The environment says which origins are its own."""
    from prefect.server.api.server import create_app

    return OwnPages(create_app(), os.environ[ORIGINS_VARIABLE].split(","))


class OwnPages:
    """Lets requests pass that name this machine and come from no other origin's page.

    Programs send no Origin and pass. The port of the host may be any: it may be forwarded from another.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan" or (refusal := self._refusal(scope)) is None:
            return await self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008, "reason": refusal})
        return await PlainTextResponse(refusal, 403)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if _hostname(headers.get(b"host", "")) not in self._hosts:
            return f"the Host header must name this machine; found {headers.get(b'host', '')!r}"
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            return f"only the server's own pages may use it from a browser; found the origin {origin!r}"
        return None


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # a bracket that is not closed
        return None
