"""The FastAPI application that serves worlds, and what is started and stopped with it.

Every failure is answered with `{"error": {"code", "message"}}`, the code one of `reasons.Reason`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from envs.service.agentgym import AgentGymEnvironments, agentgym_routes
from envs.service.episodes import Episodes
from envs.service.guards import Authorisation, BodyLimit, ClientRate, OwnHost, OwnOrigin, refused
from envs.service.limits import RequestRates, ServiceLimits
from envs.service.metrics import Metrics, RequestCounter
from envs.service.offers import ContentOf, Offer, served, unknown_content
from envs.service.openapi_page import page_routes
from envs.service.openenv import ServedSessions, elsewhere, openenv_routes
from envs.service.reasons import Reason, Refusal
from envs.service.routes import Service, routes
from envs.service.schema import PREFIX, SCHEMA_VERSION

DESCRIPTION = """Text worlds for agents: episodes are created, reset, stepped and closed.

Below `/v2` is the service's own protocol; below `/agentgym` that of AgentGym, whose clients take such an address; below
`/openenv` what OpenEnv's clients ask of a server. Their sessions live on the WebSocket
`/openenv/{world}/{split}/ws`, which this document cannot describe: see docs/neighbours.md.
"""


def create_application(
    offers: Sequence[Offer],
    *,
    limits: ServiceLimits | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    other_hosts: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
    content_of: ContentOf = unknown_content,
) -> FastAPI:
    """An application that serves these worlds. Raises ValueError for a wrong offer.

    `host` and `other_hosts` are the host names that it accepts, besides those of the loopback. `clock` returns the
    seconds in which leases and rates are measured. `content_of`: see `offers.ContentOf`.
    """
    limits = limits or ServiceLimits()
    metrics = Metrics()
    worlds = {each.description.id: each for each in served(offers, content_of)}
    app = FastAPI(
        title="Turnwise worlds",
        version=str(SCHEMA_VERSION),
        description=f"{DESCRIPTION}\n{limits.description}\n",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a path with a trailing slash is another path, answered as unknown like every other
        lifespan=_living(limits),
        middleware=[
            Middleware(RequestCounter, metrics=metrics),
            Middleware(OwnHost, host=host, others=other_hosts),
            Middleware(OwnOrigin),
            *_rates(limits, clock),
            Middleware(Authorisation, token=token),
            Middleware(BodyLimit, most_bytes=limits.body_bytes, seconds=limits.request_seconds),
        ],
    )
    episodes = Episodes(worlds, limits, metrics, clock)
    app.state.service = Service(worlds, episodes, metrics)
    app.state.agentgym = AgentGymEnvironments(worlds, episodes)
    app.include_router(page_routes)
    app.include_router(routes)
    app.state.openenv = ServedSessions(worlds, episodes)
    app.include_router(agentgym_routes)
    app.include_router(openenv_routes)
    app.include_router(elsewhere)
    _add_error_answers(app)
    return app


def _rates(limits: ServiceLimits, clock: Callable[[], float]) -> list[Middleware]:
    """The check of how often each client asks, where that is limited."""
    if limits.client_requests is None:
        return []
    return [
        Middleware(ClientRate, rates=RequestRates(limits.client_requests, clock), per_second=limits.client_requests)
    ]


def _living(limits: ServiceLimits) -> Callable[[FastAPI], Any]:
    """Lifespan that starts the homes and the reaper, and stops them at the end."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service: Service = app.state.service
        homes = [each.home for each in service.worlds.values()]
        try:
            async with asyncio.TaskGroup() as starting:
                for home in homes:
                    starting.create_task(home.start())
            reaper = asyncio.create_task(_reap(service.episodes, min(15.0, limits.lease_seconds / 4)))
            yield
            reaper.cancel()
            await service.episodes.close_all()
        finally:
            await asyncio.gather(*(home.stop() for home in homes))

    return life


async def _reap(episodes: Episodes, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        episodes.reap()


def _add_error_answers(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def on_refusal(_: Request, refusal: Refusal) -> Response:
        return refused(refusal)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return refused(Refusal(Reason.INVALID_REQUEST, f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> Response:
        reason = Reason.UNKNOWN_ROUTE if error.status_code in (404, 405) else Reason.INVALID_REQUEST
        return refused(Refusal(reason, str(error.detail)), error.status_code)

    @app.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> Response:
        return refused(Refusal(Reason.INTERNAL, f"the service failed: {type(error).__name__}"))
