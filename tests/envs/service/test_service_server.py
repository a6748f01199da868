"""The server as it is really run: a process with workers, that says where it is and ends in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from service_samples import BRITTLE

from envs.service import RemoteWorld

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_server_says_what_it_serves_and_ends_with_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = (
        "from envs.service.server import serve\n"
        f"serve(['frozen_lake', '{BRITTLE}'], port={port}, token='sesame', processes={{'{BRITTLE}': 1}})"
    )
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests" / "envs" / "service")])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as server:
        assert server.stdout is not None
        said = [server.stdout.readline() for _ in range(3)]
        assert said[0].startswith("frozen_lake (version 1) as frozen_lake-")
        assert said[1].startswith(f"{BRITTLE} (version 3) as brittle-")
        assert said[2] == f"http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        url = f"http://127.0.0.1:{port}"
        wait_for(url)
        monkeypatch.setenv("TURNWISE_SERVICE_TOKEN", "sesame")
        world = RemoteWorld(url=url, world=BRITTLE, version="3")
        environment = world.make(world.tasks("test", 1)[0], 0)
        environment.reset()
        worker = int(environment.step("pid").observation.text.split()[0])
        assert Path(f"/proc/{worker}").exists()
        server.send_signal(signal.SIGINT)
        server.wait()
        assert not Path(f"/proc/{worker}").exists()


def wait_for(url: str) -> None:
    while True:
        try:
            assert httpx.get(f"{url}/v2/health").status_code == 200
            return
        except httpx.ConnectError:
            time.sleep(0.05)
