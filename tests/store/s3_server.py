"""A real S3 server on the loopback address, moto's, and what can go wrong with one: a layer before it that fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

BUCKET = "lab"
Answered = Any
Troubles = Callable[[dict[str, Any]], "tuple[str, bytes] | None"]


class S3Server:
    """The server: its address, and every request that it got. `trouble` may answer in its place."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.address = ""
        self.requests: list[str] = []
        self.trouble: Troubles = lambda request: None
        """Called with each request; returns a status and a body instead of moto's answer, or None."""

        self.breaks_off = 0
        """How many of the next answers with an object end in their middle."""

    def for_one_test(self, monkeypatch: pytest.MonkeyPatch, secret: str) -> Iterator[S3Server]:
        """This server with an empty bucket, for a process that has the secret, and without trouble afterwards."""
        for name, value in {
            "AWS_ACCESS_KEY_ID": "AKIDOFNOBODY",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.address,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        self.trouble = lambda request: None
        httpx.post(f"{self.address}/moto-api/reset", timeout=60).raise_for_status()
        httpx.put(f"{self.address}/{BUCKET}", timeout=60).raise_for_status()
        self.requests.clear()
        yield self
        self.trouble = lambda request: None

    def objects(self) -> dict[str, bytes]:
        """The content of every object of the bucket, by key."""
        import boto3

        client = boto3.client("s3")
        keys = [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    def put(self, key: str, content: bytes) -> None:
        """Replace an object, behind everybody's back."""
        import boto3

        boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        answer = self.trouble(environ)
        if (
            answer is None
            and self.breaks_off
            and environ["REQUEST_METHOD"] == "GET"
            and "list-type" not in str(environ)
        ):
            self.breaks_off -= 1
            return [b"".join(self._application(environ, start_response))[:100]]
        if answer is None:
            return self._application(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body = answer
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]


@contextmanager
def running() -> Iterator[S3Server]:
    """The server while the block runs."""
    pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    pytest.importorskip("moto", reason="moto, of the extra dev, is not installed")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server(DomainDispatcherApplication(create_backend_app))
    listening = make_server("127.0.0.1", 0, server, threaded=True)
    server.address = f"http://127.0.0.1:{listening.port}"
    thread = threading.Thread(target=listening.serve_forever, name="S3 of the session")
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def failing(times: int, status: str = "503 Service Unavailable", when: str = "") -> Troubles:
    """Trouble with the first requests whose method and path hold `when`."""
    left = [times]

    def answer(request: dict[str, Any]) -> tuple[str, bytes] | None:
        if left[0] == 0 or when not in f"{request['REQUEST_METHOD']} {request['PATH_INFO']}":
            return None
        left[0] -= 1
        code = "AccessDenied" if status.startswith("403") else "SlowDown"
        return status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()

    return answer
