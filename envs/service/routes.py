"""The routes: each reads a request of the schema and calls the episodes or the worlds.

Batch routes do for many episodes at once what the single routes do for one; a failure of one leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from envs.service import schema
from envs.service.episodes import Episodes, find_world
from envs.service.limits import client_of
from envs.service.metrics import CONTENT_TYPE, Metrics
from envs.service.offers import Served
from envs.service.reasons import Reason, Refusal
from turnwise.world import Split

Content = TypeVar("Content", bound=BaseModel)


@dataclass
class Service:
    """The worlds, episodes and metrics that the routes use."""

    worlds: dict[str, Served]
    """Served worlds by id."""
    episodes: Episodes
    metrics: Metrics


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _client(request: Request) -> str:
    return client_of(request.scope)


Here = Annotated[Service, Depends(_service)]
Client = Annotated[str, Depends(_client)]
"""The address of who asks."""

routes = APIRouter(
    prefix=schema.PREFIX, responses={"4XX": {"model": schema.ErrorReply}, "5XX": {"model": schema.ErrorReply}}
)


@routes.get("/health", response_model=schema.Health)
async def health() -> Response:
    """Whether the server answers. Needs no token."""
    return _json(schema.Health(status="ok", schema_version=schema.SCHEMA_VERSION))


@routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(here: Here) -> Response:
    """What the service counted, in Prometheus' text form."""
    return Response(here.metrics.text(), media_type=CONTENT_TYPE)


@routes.get("/worlds", response_model=schema.Worlds)
async def worlds(here: Here) -> Response:
    """What is served, and all that each world says of itself."""
    return _json(schema.Worlds(worlds=[each.description for each in here.worlds.values()]))


@routes.get("/worlds/{world}", response_model=schema.ServedWorld)
async def describe(world: str, here: Here) -> Response:
    """What one world says of itself."""
    return _json(find_world(here.worlds, world).description)


@routes.get("/worlds/{world}/tasks", response_model=schema.Tasks)
async def tasks(
    world: str,
    split: Split,
    count: Annotated[int, Query(ge=0)],
    here: Here,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int | None, Query(ge=1, le=schema.MOST_AT_ONCE)] = None,
) -> Response:
    """A page of the first `count` tasks of a split, in order: at most `limit` of them, from `offset` on.

    Without a limit all of them, where they fit in a page.
    """
    listing = find_world(here.worlds, world).listing
    if limit is None and count - offset > schema.MOST_AT_ONCE:
        raise Refusal(
            Reason.INVALID_REQUEST,
            f"a page holds at most {schema.MOST_AT_ONCE} tasks; found count {count} without a limit: ask for pages "
            "with `offset` and `limit`, as this version's client does",
        )
    return _json(schema.Tasks(tasks=await listing.page(split, count, offset, limit or schema.MOST_AT_ONCE)))


@routes.post("/worlds/{world}/limits", response_model=schema.TaskLimits)
async def limits(world: str, request: schema.AboutTask, here: Here) -> Response:
    """The limits that a task is meant to be played under."""
    return _json(schema.TaskLimits(limits=await find_world(here.worlds, world).listing.limits_of(request.task)))


@routes.post("/episodes", response_model=schema.Created)
async def create(request: schema.Create, here: Here, client: Client) -> Response:
    """Make an environment for one episode of a task. It holds a place until it is closed or its lease runs out."""
    return _json(await here.episodes.create(request, client))


@routes.post("/episodes/{episode}/reset", response_model=schema.Seen)
async def reset(episode: str, here: Here) -> Response:
    """Start the episode: the first observation."""
    return _json(await here.episodes.reset(episode))


@routes.post("/episodes/{episode}/step", response_model=schema.Stepped)
async def step(episode: str, request: schema.PlayStep, here: Here) -> Response:
    """Play the next action. The last step, sent again, is answered as before and not played twice."""
    return _json(await here.episodes.step(episode, request))


@routes.get("/episodes/{episode}/observation", response_model=schema.EpisodeStanding)
async def observation(episode: str, here: Here) -> Response:
    """Where the episode stands: what was seen last."""
    return _json(await here.episodes.standing(episode))


@routes.post("/episodes/{episode}/decide", response_model=schema.Decided)
async def decide(episode: str, request: schema.EpisodeQuestion, here: Here) -> Response:
    """What a scripted baseline policy of the world does now. Changes nothing."""
    return _json(await here.episodes.decide(episode, request))


@routes.delete("/episodes/{episode}", response_model=schema.Closed)
async def close(episode: str, here: Here) -> Response:
    """Free an episode. One that is not there is answered too, so that this is safe to send again."""
    return _json(await here.episodes.close(episode))


@routes.post("/batch/create", response_model=schema.Batch[schema.Created])
async def create_many(request: schema.CreateMany, here: Here, client: Client) -> Response:
    """Make many environments."""
    return _json(await _each(here.episodes.create(each, client) for each in request.episodes))


@routes.post("/batch/reset", response_model=schema.Batch[schema.Seen])
async def reset_many(request: schema.Many, here: Here) -> Response:
    """Start many episodes."""
    return _json(await _each(map(here.episodes.reset, request.episodes)))


@routes.post("/batch/step", response_model=schema.Batch[schema.Stepped])
async def step_many(request: schema.StepMany, here: Here) -> Response:
    """Play a step in each of many episodes, all at the same time; steps of one episode in their order."""
    return _json(
        await _each(
            here.episodes.step(each.episode, schema.PlayStep(number=each.number, action=each.action))
            for each in request.steps
        )
    )


@routes.post("/batch/close", response_model=schema.Batch[schema.Closed])
async def close_many(request: schema.Many, here: Here) -> Response:
    """Free many episodes."""
    return _json(await _each(map(here.episodes.close, request.episodes)))


def _json(reply: BaseModel) -> Response:
    """Serialised reply, without FastAPI's second validation of what is a model already."""
    return Response(reply.model_dump_json(), media_type="application/json")


async def _each(work: Iterable[Awaitable[Content]]) -> schema.Batch[Content]:
    return schema.Batch[Content](outcomes=await asyncio.gather(*map(_outcome, work)))


async def _outcome(work: Awaitable[Content]) -> schema.Outcome[Content]:
    try:
        return schema.Outcome[Content](reply=await work)
    except Refusal as refusal:
        return schema.Outcome[Content](error=schema.Fault(code=refusal.reason, message=refusal.message))
