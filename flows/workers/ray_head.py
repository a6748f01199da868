"""The head of a Ray cluster, as a process that has joined it needs it: its token, and whether it still answers."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

SECONDS_WITHOUT_HEAD = 20.0
"""For how long the head may not answer. After 60 Ray would end this process, without a word of ours."""
SECONDS_BETWEEN_LOOKS = 1.0


class RayHead:
    """Looks whether the head answers."""

    def __init__(self, address: str) -> None:
        """`address` is HOST:PORT of the head's control service (GCS)."""
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._answered = time.monotonic()

    def loss(self) -> str:
        """Why the head counts as lost; empty as long as it answers, or has answered a moment ago."""
        silent = time.monotonic() - self._answered
        if silent < SECONDS_BETWEEN_LOOKS:
            return ""
        try:
            socket.create_connection(self._address, timeout=SECONDS_WITHOUT_HEAD / 2).close()
        except OSError as error:
            return f"its head has not answered for {silent:.0f} s ({error})" if silent > SECONDS_WITHOUT_HEAD else ""
        self._answered = time.monotonic()
        return ""


def token_mode() -> dict[str, str]:
    """The variable by which Ray shows its token, where there is one.

    `ray start` has a cluster ask for it, and a process that joins by `ray.init` does not show it by itself. Ray reads
    the variable when it is imported.
    """
    named = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return {"RAY_AUTH_MODE": "token"} if named or (Path.home() / ".ray" / "auth_token").exists() else {}
