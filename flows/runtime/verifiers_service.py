"""`verifiers:PACKAGE`: an environment of verifiers, served from a Python environment of its own.

The library asks for other versions of packages than the locked set holds. So its Python environment gets the package,
the service's few requirements and, by links, this code, and runs the service, which is played as the world `remote`.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.runtime.server import free_port
from turnwise import progress
from turnwise.errors import ConfigurationError
from turnwise.world import World, make_world

PREFIX = "verifiers:"
WORLD = "envs.verifiers.world:Verifiers"
SERVICE = ("fastapi", "httpx", "numpy", "prometheus-client", "pydantic", "pyyaml", "uvicorn", "verifiers", "websockets")
"""What the world and its service import."""
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("verifiers_program.py")
"""What runs there."""
SECONDS_TO_START = 120.0
LAST_LINES = 5
"""How much of what a failed installation or service has said is shown."""
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def is_verifiers(name: str) -> bool:
    """Whether a world's name is `verifiers:PACKAGE`."""
    return name.startswith(PREFIX)


def served_world(name: str, settings: Mapping[str, Any]) -> tuple[World, dict[str, Any]]:
    """The world `remote` that plays an environment, whose service ends with this process, and its parameters.

    Raises as `start_service` does.
    """
    server, remote_parameters = start_service(name, settings)
    atexit.register(end_process, server)
    return make_world("remote", remote_parameters), remote_parameters


def start_service(name: str, settings: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Set up and serve an environment: the service's process, and the parameters with which `remote` plays it.

    `settings`: the parameters of `envs.verifiers.world`, and `requirements`, what its Python environment needs besides
    the package. Raises ConfigurationError where these cannot be installed, or the environment cannot be loaded.
    """
    folder, parameters = _set_up(name, settings)
    port = free_port()
    with tempfile.TemporaryFile() as log:
        server = _start(folder, parameters, {"port": port}, log)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + SECONDS_TO_START
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                end_process(server)
                log.seek(0)
                tail = _end_of(log.read().decode(errors="replace"))
                raise ConfigurationError(
                    f"{name} must be an environment that verifiers loads; its service says\n{tail}", "TW-unknown-world"
                )
            time.sleep(0.1)
    return server, {"url": url, "world": WORLD, "version": "1", "parameters": parameters, "seconds": 60.0}


def run_service(offer: str, options: Mapping[str, Any]) -> int:
    """Serve `verifiers:PACKAGE` or `verifiers:PACKAGE={parameters}` until a signal ends it: the service's exit status.

    `options`: those of `envs.service.server.serve`, with `token_variable` for the token. Raises as `served_world` does.
    """
    name, brace, text = offer.partition("={")
    folder, parameters = _set_up(name, yaml.safe_load(brace[1:] + text) or {})
    return _start(folder, parameters, options, None).wait()


def _set_up(name: str, settings: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder with the Python environment, which is made where there is none, and the world's parameters."""
    package = name.removeprefix(PREFIX)
    distribution = re.match(r"[A-Za-z0-9][\w.-]*", package)
    if distribution is None:
        raise ConfigurationError(
            f"after {PREFIX} must stand a package, such as verifiers:marble-v1; found {package!r}", "TW-plugin-name"
        )
    parameters = {"environment": re.sub(r"[.-]", "_", distribution[0]).lower(), **settings}
    requirements = [package, *parameters.pop("requirements", []), *SERVICE]
    digest = hashlib.sha256(json.dumps([requirements, sys.version, str(ROOT)]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "turnwise" / "verifiers" / f"{distribution[0]}-{digest}"
    if not (folder / "ready").is_file():
        sys.stderr.write(f"Installing {package} and verifiers into {folder}: half a minute, once ...\n")
        progress.report(f"installing {package}", 0, 0)
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder, requirements)
        (folder / "ready").touch()
    return folder, parameters


def _install(folder: Path, requirements: list[str]) -> None:
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    installer = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python)]
    if importlib.util.find_spec("uv") is None:
        installer = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    install = subprocess.run([*installer, "--quiet", *requirements], capture_output=True, text=True)
    if install.returncode:
        raise ConfigurationError(
            f"the packages {', '.join(requirements)} must be installable together; found\n{_end_of(install.stderr)}",
            "TW-missing-package",
        )
    packages = next(folder.glob("lib/python*/site-packages"))
    for name, target in {
        "envs": ROOT / "envs",
        "turnwise": ROOT / "turnwise",
        "turnwise_harness.py": ROOT / "envs" / "verifiers" / "harness.py",
    }.items():
        (packages / name).symlink_to(target)


def _start(
    folder: Path, parameters: Mapping[str, Any], options: Mapping[str, Any], log: Any
) -> subprocess.Popen[bytes]:
    """Start the service, which ends with this process. Without a log it writes to this terminal."""
    service_options = {**options, "worlds": [f"{WORLD}={json.dumps(parameters)}"]}
    # With -P, and in the folder, so that no module next to the program or of the user's hides one of the package's.
    return subprocess.Popen(
        [folder / "bin" / "python", "-P", PROGRAM, json.dumps(service_options)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=log,
        stderr=log,
        preexec_fn=die_with_parent,
    )


def die_with_parent() -> None:
    """On Linux, have the kernel end the service if this process is killed, so that it is not left running."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_process(service: subprocess.Popen[bytes]) -> None:
    """End a service, by force if it takes longer than ten seconds."""
    service.terminate()
    try:
        service.wait(timeout=10)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v2/health", timeout=5):
            return True
    except OSError:
        return False


def _end_of(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])
