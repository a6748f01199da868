"""The address at which a recorded policy answers."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import httpx
import pytest

from flows.runtime.endpoint import Recording


def _has_loopback(host: str) -> bool:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_loopback("::1"), reason="this machine has no IPv6 loopback address")
def test_a_policy_answers_at_a_loopback_address_of_ipv6_too() -> None:
    recording = object.__new__(Recording)
    status = {"episodes": 0}
    vars(recording).update(_sampling=SimpleNamespace(context_length=1), recorder=SimpleNamespace(status=status))
    with recording.serving("::1") as address:
        assert address.startswith("http://[::1]:")
        assert httpx.get(f"{address}/status", trust_env=False).json() == status
