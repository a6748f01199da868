"""The server's process: `serve` implements `turnwise serve`."""

from __future__ import annotations

import resource
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import uvicorn

from envs.service.application import create_application
from envs.service.connections import bounded_connection, bounded_session
from envs.service.guards import require_safe
from envs.service.limits import ServiceLimits
from envs.service.offers import ContentOf, read_offers, unknown_content

KEEP_ALIVE_SECONDS = 120
"""Longer than clients keep an idle connection, so that the server never closes one on a request that is under way."""
GRACE_SECONDS = 10
OTHER_FILES = 256
"""Upper bound on the files that the server has open besides its connections."""


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
    """Serve worlds over HTTP until the process receives a signal to end.

    `worlds`: texts that `offers.read_offers` reads. `processes`: by a world's name, the number of worker processes for
    its environments (0: on threads of the server). `token`: what clients must send as `Authorization: Bearer TOKEN`.
    `other_hosts`: names by which clients reach the server, besides `host` and those of the loopback. `content_of`: a
    digest of a world's code and of what it reads, by which clients notice that these have changed. Raises ValueError
    for a wrong world, for a host that others can reach while there is no token, and for more connections than this
    process may open files.
    """
    require_safe(host, token)
    limits = limits or ServiceLimits()
    _allow_open_files(limits.connections + OTHER_FILES)
    offers = read_offers(worlds, processes)
    app = create_application(
        offers, limits=limits, token=token, host=host, other_hosts=other_hosts, content_of=content_of
    )
    for each in app.state.service.worlds.values():
        sys.stdout.write(
            f"{each.description.world} (version {each.description.facts.version}) as {each.description.id}\n"
        )
    sys.stdout.write(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)\n")
    sys.stdout.flush()
    uvicorn.run(app, host=host, port=port, log_level="warning", **connection_options(limits))


def connection_options(limits: ServiceLimits) -> dict[str, Any]:
    """Uvicorn's options for connections."""
    return {
        "http": bounded_connection(limits.connections, limits.request_seconds),
        "ws": bounded_session(limits.request_seconds),
        "ws_max_size": limits.body_bytes,
        "ws_per_message_deflate": False,  # a small message could unpack to a large one
        "ws_ping_timeout": None,  # a client that computes for long answers no ping; the lease ends what is abandoned
        "access_log": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }


def _allow_open_files(count: int) -> None:
    """Allow this process to open `count` files. Raises ValueError if its hard limit is lower."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count:
        raise ValueError(
            f"connections must be at most {max(most - OTHER_FILES, 0)}, since this process may open {most} files "
            f"(`ulimit -Hn`); found {count - OTHER_FILES}"
        )
    if allowed != resource.RLIM_INFINITY and allowed < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))
