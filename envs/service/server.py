"""The server's process: `serve` is what `turnwise serve` calls."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import uvicorn

from envs.service.application import create_application
from envs.service.episodes import ServiceLimits
from envs.service.guards import require_safe
from envs.service.offers import read_offers

KEEP_ALIVE_SECONDS = 120
"""Longer than clients keep an idle connection, so that a server never hangs up on a request that is on its way."""
GRACE_SECONDS = 10


def serve(
    worlds: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    token: str | None = None,
    processes: Mapping[str, int] | None = None,
    limits: ServiceLimits | None = None,
) -> None:
    """Serve worlds over HTTP until the process is told to end.

    `worlds`: what `offers.read_offers` reads. `processes`: of a world by name, in how many worker processes its
    environments live (0: on threads of the server). `token`: what clients must send as `Authorization: Bearer TOKEN`.
    Raises ValueError for a wrong world, and for a host that others can reach while there is no token.
    """
    require_safe(host, token)
    app = create_application(read_offers(worlds, processes), limits=limits, token=token)
    for each in app.state.service.worlds.values():
        sys.stdout.write(f"{each.told.world} (version {each.told.facts.version}) as {each.told.id}\n")
    sys.stdout.write(f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)\n")
    sys.stdout.flush()
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
