"""What an ablation depends on besides itself, each as a real server on the loopback address that can be killed."""

from __future__ import annotations

import io
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from flows.runtime.server import free_port
from flows.workers.ray_cluster import LOOPBACK, RAY_SETTINGS
from tests.process_tree import command_line, descendants
from tests.store.s3_server import BUCKET, S3Server, Troubles


def kill(processes: list[int]) -> int:
    """Kill these at once; how many there were."""
    struck = 0
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
            struck += 1
        except ProcessLookupError:
            continue
    return struck


def workers_of(process: int, words: str) -> list[int]:
    """The processes that a process has started, and theirs, whose command line holds these words."""
    return [each for each in descendants(process) if words in command_line(each)]


class RayCluster:
    """A Ray cluster of one machine, whose head can be killed and started again; it remembers nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.variables = {
            **LOOPBACK,
            **RAY_SETTINGS,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }

    def start(self) -> None:
        """Start the head, and wait until it takes tasks."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head"]
        command += ["--node-ip-address=127.0.0.1", f"--port={self.port}", "--num-cpus=2", "--include-dashboard=false"]
        command += ["--min-worker-port=0", "--max-worker-port=0"]
        command += [f"--object-store-memory={100 * 2**20}", f"--temp-dir={self._folder}"]
        with (self._folder / "start.log").open("ab") as log:
            environment = {**os.environ, **self.variables}
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def processes(self, words: str = "") -> list[int]:
        """Those of the cluster whose command line holds these words."""
        own = [
            int(each.name) for each in Path("/proc").glob("[0-9]*") if str(self._folder) in command_line(int(each.name))
        ]
        every = {*own, *(each for process in own for each in descendants(process))}
        return sorted(each for each in every if words in command_line(each))

    def kill_head(self) -> None:
        """Kill the head's control service alone: workers go on for a while."""
        kill(self.processes("gcs_server"))

    def kill_machine(self) -> None:
        """Kill everything on the head's machine at once."""
        kill(self.processes())

    def start_again(self) -> None:
        """Start a new head where the old one was."""
        self.kill_machine()
        self.start()


class StoreServer:
    """moto's S3 server, whose objects outlive it, and what can go wrong with one."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._port = free_port()
        self._server = S3Server(DomainDispatcherApplication(create_backend_app))
        self._server.address = f"http://127.0.0.1:{self._port}"
        self._listening: Any = None
        self.variables = {
            "AWS_ACCESS_KEY_ID": "AKIDOFNOBODY",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self._server.address,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def start(self) -> None:
        """Listen."""
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)

        self._listening = make_server("127.0.0.1", self._port, self._server, threaded=True)
        threading.Thread(target=self._listening.serve_forever, daemon=True).start()

    def make_bucket(self) -> None:
        """Make the bucket, empty."""
        httpx.post(f"{self._server.address}/moto-api/reset", timeout=60).raise_for_status()
        httpx.put(f"{self._server.address}/{BUCKET}", timeout=60).raise_for_status()

    def kill(self) -> None:
        """Stop listening: every call is refused."""
        self._listening.shutdown()
        self._listening.server_close()

    def away(self, seconds: float) -> None:
        """Killed, and started again after so long."""
        self.kill()
        time.sleep(seconds)
        self.start()

    def troubled(self, trouble: Troubles, seconds: float) -> None:
        """Have this trouble with each request, for so long."""
        self._server.trouble = trouble
        time.sleep(seconds)
        self._server.trouble = lambda request: None


def busy(request: dict[str, Any]) -> tuple[str, bytes] | None:
    """503, whatever is asked."""
    return "503 Service Unavailable", b"<Error><Code>SlowDown</Code><Message>No.</Message></Error>"


def without_an_answer(request: dict[str, Any]) -> tuple[str, bytes] | None:
    """Nothing for longer than anybody waits."""
    time.sleep(90.0)
    return busy(request)


def kept_by_half(request: dict[str, Any]) -> tuple[str, bytes] | None:
    """Acknowledge what is sent, and keep the first half of it."""
    if request["REQUEST_METHOD"] == "PUT" and int(request.get("CONTENT_LENGTH") or 0) > 1:
        content = request["wsgi.input"].read(int(request["CONTENT_LENGTH"]))
        request["wsgi.input"] = io.BytesIO(content[: len(content) // 2])
        request["CONTENT_LENGTH"] = str(len(content) // 2)
    return None


@contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables in the environment of this process, and so of all that it starts meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
