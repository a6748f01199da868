"""The bundled Prefect server's application, restricted to this machine and to the server's own pages.

Prefect's API has no password. Unprotected, any web page that the user visits could delete runs through the browser:
Prefect allows every origin, and accepts any host name that an attacker has pointed at 127.0.0.1 (DNS rebinding). So a
request must name this machine as its host, and a request from a web page must come from the server's own pages.

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
    """The origins of the pages of a server on this port, in the format of Prefect's setting."""
    return f"http://127.0.0.1:{port},http://localhost:{port}"


def application() -> ASGIApp:
    """Prefect's application behind the guard; the allowed origins are read from the environment."""
    from prefect.server.api.server import create_app

    return OwnPages(create_app(), os.environ[ORIGINS_VARIABLE].split(","))


class OwnPages:
    """Accepts only requests that name this machine as host and do not come from a page of another origin.

    Programs send no Origin header and are accepted. Any port is accepted in the host, since it may be forwarded.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it."""
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
