"""Prefect's clients of a server that is reached without a proxy, such as one on this machine.

Prefect's client reads HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, and makes a connection for each of them, whether or not it
will use it. For a SOCKS proxy that fails where httpx cannot make one (`socksio` is not installed, or the address begins
with `socks://`), although NO_PROXY names the server. So nothing of the environment is read for such a server.
"""

from __future__ import annotations

import ipaddress
import os
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_direct(url: str) -> bool:
    """Whether no proxy is between this machine and the server at this address: its own, or one that NO_PROXY names."""
    host = urlsplit(url).hostname or ""
    return host in LOOPBACK or _is_loopback(host) or bool(proxy_bypass(host))


def bypass_proxies() -> None:
    """Exclude the loopback address from proxies, which cannot reach it; Prefect's client would use them for it."""
    set_already = ",".join(os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy"))
    excepted = [name.strip() for name in set_already.split(",") if name.strip()]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(dict.fromkeys([*excepted, *LOOPBACK]))


def connect_directly(url: str) -> None:
    """Have Prefect's clients of this process ask the server at `url` without a proxy, if there is none between.

    Prefect has no setting for it.
    """
    if not is_direct(url):
        return
    from prefect.client import base, orchestration

    clients: dict[str, Any] = {
        "PrefectHttpxSyncClient": base.PrefectHttpxSyncClient,
        "PrefectHttpxAsyncClient": base.PrefectHttpxAsyncClient,
    }
    for name, client in clients.items():
        setattr(orchestration, name, partial(client, trust_env=False))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
