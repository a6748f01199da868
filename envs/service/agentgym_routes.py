"""The routes of AgentGym's protocol: see `agentgym`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from envs.service.agentgym import AgentGymEnvironments, AgentGymRequest, ClientName
from envs.service.routes import Client
from envs.service.schema import ErrorReply
from turnwise.world import Split

AGENTGYM_PREFIX = "/agentgym/{client}/{world}/{split}"

agentgym_routes = APIRouter(
    prefix=AGENTGYM_PREFIX, tags=["AgentGym"], responses={"4XX": {"model": ErrorReply}, "5XX": {"model": ErrorReply}}
)


async def _environments(request: Request) -> AgentGymEnvironments:
    environments: AgentGymEnvironments = request.app.state.agentgym
    return environments


Here = Annotated[AgentGymEnvironments, Depends(_environments)]


@agentgym_routes.get("/")
async def introduce(client: ClientName, world: str, split: Split, here: Here) -> str:
    """What a newcomer must know of the world: its aim and its actions."""
    return here.introduction(world)


@agentgym_routes.post("/create")
async def create(
    client: ClientName, world: str, split: Split, here: Here, request: AgentGymRequest | None = None
) -> Any:
    """A number for an environment. It holds no place until it is reset."""
    return await here.create(client, world, split)


@agentgym_routes.post("/reset")
async def reset(
    client: ClientName, world: str, split: Split, request: AgentGymRequest, here: Here, address: Client
) -> Any:
    """Begin an item: the task with this place in the split. What was played before is freed."""
    return await here.reset(client, world, split, request, address)


@agentgym_routes.post("/step")
async def step(client: ClientName, world: str, split: Split, request: AgentGymRequest, here: Here) -> Any:
    """Play an action. Must not be sent twice."""
    return await here.step(client, world, split, request)


@agentgym_routes.get("/observation")
async def observation(
    client: ClientName,
    world: str,
    split: Split,
    here: Here,
    id: Annotated[int | None, Query(ge=0)] = None,
    env_idx: Annotated[int | None, Query(ge=0)] = None,
) -> str:
    """What was seen last."""
    return await here.observation(client, world, split, AgentGymRequest(id=id, env_idx=env_idx))


@agentgym_routes.post("/close")
async def close(client: ClientName, world: str, split: Split, request: AgentGymRequest, here: Here) -> bool:
    """Forget a number and free its episode; false if it is not there."""
    return await here.close(client, world, split, request)
