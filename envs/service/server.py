"""The server's process: `serve` is what `turnwise serve` calls."""

from __future__ import annotations

import resource
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import uvicorn

from envs.service.application import create_application
from envs.service.connections import bounded_connection
from envs.service.episodes import ServiceLimits
from envs.service.guards import require_safe
from envs.service.offers import ContentOf, read_offers, unknown_content

KEEP_ALIVE_SECONDS = 120
"""Longer than clients keep an idle connection, so that a server never hangs up on a request that is on its way."""
GRACE_SECONDS = 10
OTHER_FILES = 256
"""What the server has open beside its connections, at most."""


def serve(
    worlds: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    token: str | None = None,
    other_hosts: Collection[str] = (),
    processes: Mapping[str, int] | None = None,
    limits: ServiceLimits | None = None,
    content_of: ContentOf = unknown_content,
) -> None:
    """Serve worlds over HTTP until the process is told to end.

    `worlds`: what `offers.read_offers` reads. `processes`: of a world by name, in how many worker processes its
    environments live (0: on threads of the server). `token`: what clients must send as `Authorization: Bearer TOKEN`.
    `other_hosts`: names that clients reach it by, beside `host` and those of the loopback. `content_of`: a digest of a
    world's code and of what it reads, by which clients notice that these have changed.
    Raises ValueError for a wrong world, for a host that others can reach while there is no token, and for more
    connections than this process may open files.
    """
    require_safe(host, token)
    limits = limits or ServiceLimits()
    _allow_open_files(limits.connections + OTHER_FILES)
    offers = read_offers(worlds, processes)
    app = create_application(
        offers, limits=limits, token=token, host=host, other_hosts=other_hosts, content_of=content_of
    )
    for each in app.state.service.worlds.values():
        sys.stdout.write(f"{each.told.world} (version {each.told.facts.version}) as {each.told.id}\n")
    sys.stdout.write(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)\n")
    sys.stdout.flush()
    uvicorn.run(app, host=host, port=port, log_level="warning", **connection_options(limits))


def connection_options(limits: ServiceLimits) -> dict[str, Any]:
    """How uvicorn is to treat connections."""
    return {
        "http": bounded_connection(limits.connections, limits.request_seconds),
        "ws": "none",
        "access_log": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }


def _allow_open_files(count: int) -> None:
    """Let this process open so many files. Raises ValueError where the machine does not let it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count:
        raise ValueError(
            f"connections must be at most {max(most - OTHER_FILES, 0)}, since this process may open {most} files "
            f"(`ulimit -Hn`); found {count - OTHER_FILES}"
        )
    if allowed != resource.RLIM_INFINITY and allowed < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))
