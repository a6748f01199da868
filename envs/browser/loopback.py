"""A small web server on the loopback address: several sites on one free port, distinguished by host name.

The browser resolves these host names to this server (see `chromium`), so pages have addresses without a port, the same
in every process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LONGEST_FORM = 1_000_000
"""Limit on the bytes of a request's body; our pages send far less."""

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".gif": "image/gif",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageRequest:
    """A browser's request: a path that starts with a slash, and the fields of its address and its form."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """A site's response; `location` redirects the browser."""

    body: bytes = b""
    status: int = 200
    content_type: str = CONTENT_TYPES[".html"]
    location: str | None = None


Site = Callable[[PageRequest], Response]


def page(text: str, status: int = 200) -> Response:
    """A page of HTML."""
    return Response(text.encode(), status)


def redirect(location: str) -> Response:
    """Redirect with a GET, as after a form, so that going back never sends the form again."""
    return Response(status=303, location=location)


NOT_FOUND = page("<!DOCTYPE html><title>Not found</title><h1>Not found</h1>", 404)


class Folder:
    """A site that serves a folder of files."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __call__(self, request: PageRequest) -> Response:
        """The file at the path if its type is in `CONTENT_TYPES`; otherwise "not found"."""
        file = (self._root / request.path.lstrip("/")).resolve()
        content_type = CONTENT_TYPES.get(file.suffix)
        if content_type is None or not file.is_relative_to(self._root) or not file.is_file():
            return NOT_FOUND
        return Response(file.read_bytes(), content_type=content_type)


class Loopback:
    """A running server. `sites` maps host names to sites; a request for any other host goes to `default`."""

    def __init__(self, sites: Mapping[str, Site], default: Site | None = None) -> None:
        self.sites = dict(sites)
        self.default = default
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True, name="loopback").start()

    @property
    def hosts(self) -> dict[str, int]:
        """Host names and their port, as `Chromium` takes them."""
        return dict.fromkeys(self.sites, self.port)

    def answer(self, host: str, request: PageRequest) -> Response:
        """Response of the site at that host."""
        site = self.sites.get(host, self.default)
        return NOT_FOUND if site is None else site(request)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Every page opens several connections at once; one that finds the queue full is retried only seconds later.
    request_queue_size = 1024

    def __init__(self, owner: Loopback) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A page that is closed drops what it was loading.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LONGEST_FORM:
            self.close_connection = True
            self._send(page("<!DOCTYPE html><title>Too long</title><h1>The form is too long</h1>", 413))
            return
        self._respond(_fields(self.rfile.read(int(length)).decode("utf-8", "replace")))

    def log_message(self, *arguments: object) -> None:
        """Log nothing: requests are not worth a line each."""

    def _respond(self, form: dict[str, str]) -> None:
        address = urlsplit(self.path)
        request = PageRequest(self.command, unquote(address.path), _fields(address.query), form, self._cookies())
        host = self.headers.get("Host", "").partition(":")[0]
        self._send(self.server.owner.answer(host, request))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if response.location is not None:
            self.send_header("Location", response.location)
        self.end_headers()
        self.wfile.write(response.body)

    def _cookies(self) -> dict[str, str]:
        try:
            return {name: morsel.value for name, morsel in SimpleCookie(self.headers.get("Cookie", "")).items()}
        except CookieError:
            return {}


def _fields(encoded: str) -> dict[str, str]:
    """The fields of a query or a form; the last value where a field is given more than once."""
    return {name: values[-1] for name, values in parse_qs(encoded, keep_blank_values=True).items()}
