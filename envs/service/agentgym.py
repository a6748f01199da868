"""AgentGym's protocol (arXiv 2406.04151): create, reset, step, observation and close, for AgentGym's own clients.

A client is given an address, its `env_server_base`, and asks `POST /create`, `/reset`, `/step`, `/close` and
`GET /observation` below it. Here that address is `/agentgym/CLIENT/WORLD/SPLIT`: which of AgentGym's clients asks, what
it plays, and where its items come from. No two of these clients agree on the names of fields, so each has a row in
`DIALECTS`, from their sources of May 2026.

* An environment's number is the client's until it closes it, and it may reset it as often as it likes, as AgentGym's
  trainers do. Every reset makes a fresh episode and frees the one before.
* An item is the place of a task in its split. The same item and the same `seed`, which few clients send (0 if not),
  are the same episode.
* A reward is one number: the world's rewards of the step, with the weights that their authors gave them. A score is the
  sum of the rewards since the reset.

What differs from AgentGym's servers: a failure has an HTTP status and a reason, and is never an observation or a
reward, so that a client raises and no lost episode is scored. A step carries no number in this protocol: it must not be
sent twice. A world's turn limit is the trainer's to keep, as everywhere with AgentGym.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from envs.service.episodes import Episodes
from envs.service.offers import Served, named_world, weighted_reward
from envs.service.reasons import Reason, Refusal
from envs.service.routes import Client
from envs.service.schema import Create, ErrorReply, PlayStep
from turnwise.world import Split

MOST_NUMBERS = 65_536
"""Numbers that are remembered at once; above that the one that was not used for longest is closed."""

ClientName = Literal["alfworld", "babyai", "sciworld", "searchqa", "textcraft", "webarena", "webshop"]


@dataclass(frozen=True)
class Dialect:
    """The fields in which one of AgentGym's clients asks, and reads replies."""

    handle: Literal["id", "env_idx"] = "id"
    """Name of the environment's number in requests, and in the reply to `create` unless `bare`."""
    bare: bool = False
    """Whether the reply to `create` is the number alone, and that to `reset` the observation alone."""
    item: Literal["data_idx", "game", "id", "idx", "session_id"] = "data_idx"
    """Name of the item in `reset` requests."""
    observation: Literal["observation", "state"] = "observation"
    ended: Literal["done", "terminated"] = "done"
    score_scale: float = 1.0
    """What the sum of rewards is multiplied by where `score` is read."""
    action: Literal["plain", "tags", "backticks"] = "plain"
    """How an action stands in what the client sends: as it is, as `<verb>argument</verb>`, or between three backticks
    within a longer text."""


DIALECTS: Mapping[ClientName, Dialect] = {
    "textcraft": Dialect(),
    "babyai": Dialect(),
    "sciworld": Dialect(score_scale=100.0),
    "alfworld": Dialect(item="game"),
    "webshop": Dialect("env_idx", bare=True, item="session_id", observation="state"),
    "searchqa": Dialect("env_idx", bare=True, item="id", action="tags"),
    "webarena": Dialect("env_idx", item="idx", ended="terminated", action="backticks"),
}
"""By the name of AgentGym's client."""

Number = Annotated[int, Field(ge=0)]


class AgentGymRequest(BaseModel):
    """What AgentGym's clients send, all of them together. Which fields count depends on the client's row."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    id: Number | None = None
    """The environment's number; for `searchqa` the item."""
    env_idx: Number | None = None
    """The environment's number, for `searchqa`, `webarena` and `webshop`."""
    data_idx: Number | None = None
    """The item, for `textcraft`, `babyai` and `sciworld`."""
    game: Number | None = None
    """The item, for `alfworld`."""
    idx: Number | None = None
    """The item, for `webarena`."""
    session_id: Number | None = None
    """The item, for `webshop`."""
    seed: int = 0
    """Of the episode's noise."""
    action: str | None = None
    world_type: str | None = None
    """Sent by `alfworld`; without effect."""
    minecraft_dir: str | None = None
    """Sent by `textcraft`; without effect, since the server's files are its own."""
    commands: None = None
    """Must be absent: a problem comes from the world's tasks."""
    goal: None = None
    """Must be absent, too."""


@dataclass(eq=False)
class NumberedEnvironment:
    """What stands behind an environment's number: nothing until its first reset, then an episode."""

    served: Served
    split: Split
    dialect: Dialect
    episode: str | None = None
    score: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class AgentGymEnvironments:
    """All environments that AgentGym's clients have created, by number. Every method raises Refusal."""

    def __init__(self, worlds: Mapping[str, Served], episodes: Episodes, most: int = MOST_NUMBERS) -> None:
        self._worlds, self._episodes, self._most = worlds, episodes, most
        self._numbered: OrderedDict[int, NumberedEnvironment] = OrderedDict()
        self._next = 0

    def introduction(self, world: str) -> str:
        """What a newcomer must know: a world's aim and its actions."""
        facts = named_world(self._worlds, world).description.facts
        return f"{facts.instruction}\n{facts.grammar}"

    async def create(self, client: ClientName, world: str, split: Split) -> Any:
        """A new number, in the client's form."""
        dialect = DIALECTS[client]
        environment = NumberedEnvironment(named_world(self._worlds, world), split, dialect)
        number, self._next = self._next, self._next + 1
        self._numbered[number] = environment
        if len(self._numbered) > self._most:
            _, forgotten = self._numbered.popitem(last=False)
            await self._free(forgotten)
        if dialect.bare:
            return number
        return {dialect.handle: number, "observation": self.introduction(world), "reward": 0.0, "done": False}

    async def reset(
        self, client: ClientName, world: str, split: Split, request: AgentGymRequest, address: str = ""
    ) -> Any:
        """The first observation of an item, in the client's form. `address` is the client's."""
        environment, dialect = self._find(client, world, split, request), DIALECTS[client]
        place = getattr(request, dialect.item) or 0
        async with environment.lock:
            await self._free(environment)
            (task,) = await environment.served.listing.page(split, place + 1, place, 1)
            creation = await self._episodes.create(
                Create(
                    world=environment.served.description.id, task=task, seed=request.seed, key=secrets.token_hex(16)
                ),
                address,
            )
            environment.episode, environment.score = creation.episode, 0.0
            text = (await self._episodes.reset(creation.episode)).observation.text
        if dialect.bare:
            return [text, None] if client == "webshop" else text
        return {
            dialect.handle: getattr(request, dialect.handle),
            **_reply(dialect, text, reward=0.0, score=0.0, ended=False, truncated=False),
            "task_description": environment.served.description.facts.instruction,
        }

    async def step(self, client: ClientName, world: str, split: Split, request: AgentGymRequest) -> Any:
        """The world's answer to an action, in the client's form."""
        environment = self._find(client, world, split, request)
        if request.action is None:
            raise Refusal(Reason.INVALID_REQUEST, "a step must have an action; found none")
        action = _action(request.action, environment.dialect, environment.served.description.facts.verbs or ())
        async with environment.lock:
            episode = _require_reset(environment)
            number = (await self._episodes.standing(episode)).number + 1
            step = (await self._episodes.step(episode, PlayStep(number=number, action=action))).step
            reward = weighted_reward(step, environment.served)
            environment.score += reward
            return _reply(
                environment.dialect,
                step.observation.text,
                reward=reward,
                score=environment.score * environment.dialect.score_scale,
                ended=step.terminated or step.truncated,
                truncated=step.truncated,
            )

    async def observation(self, client: ClientName, world: str, split: Split, request: AgentGymRequest) -> str:
        """What was seen last, or the introduction before the first reset."""
        environment = self._find(client, world, split, request)
        if environment.episode is None:
            return self.introduction(world)
        return (await self._episodes.standing(environment.episode)).observation.text

    async def close(self, client: ClientName, world: str, split: Split, request: AgentGymRequest) -> bool:
        """Forget a number, and free its episode; False for one that is not there."""
        number = getattr(request, DIALECTS[client].handle)
        if number not in self._numbered:
            return False
        environment = self._find(client, world, split, request)
        del self._numbered[number]
        await self._free(environment)
        return True

    def _find(self, client: ClientName, world: str, split: Split, request: AgentGymRequest) -> NumberedEnvironment:
        number = getattr(request, DIALECTS[client].handle)
        environment = self._numbered.get(number)
        if environment is None:
            raise Refusal(
                Reason.UNKNOWN_EPISODE,
                f"{DIALECTS[client].handle} must be the number of an environment that was created and not closed; "
                f"found {number}",
            )
        if (
            environment.served is not named_world(self._worlds, world)
            or environment.split != split
            or environment.dialect is not DIALECTS[client]
        ):
            raise Refusal(
                Reason.UNKNOWN_EPISODE, f"the environment {number} must be asked where it was created; found {world!r}"
            )
        self._numbered.move_to_end(number)
        return environment

    async def _free(self, environment: NumberedEnvironment) -> None:
        if environment.episode is not None:
            episode, environment.episode = environment.episode, None
            await self._episodes.close(episode)


def _require_reset(environment: NumberedEnvironment) -> str:
    if environment.episode is None:
        raise Refusal(Reason.RESET_OUT_OF_ORDER, "an environment must be reset to an item before its first step")
    return environment.episode


def _reply(dialect: Dialect, text: str, *, reward: float, score: float, ended: bool, truncated: bool) -> dict[str, Any]:
    return {
        dialect.observation: text,
        "reward": reward,
        "score": score,
        dialect.ended: ended,
        "truncated": truncated,
        "info": {},
        "available_actions": [],
    }


def _action(text: str, dialect: Dialect, verbs: Collection[str]) -> str:
    """The action within what a client sends. What cannot be read goes to the world as it is, which says what is legal.

    Of several, the last counts, as on AgentGym's search server.
    """
    if dialect.action == "tags":
        tags = [match for match in re.finditer(r"<(\w+)>(.*?)</\1>", text, re.DOTALL) if match[1] in verbs]
        return f"{tags[-1][1]}[{tags[-1][2].strip()}]" if tags else text
    if dialect.action == "backticks":
        quoted = re.findall(r"```(.*?)```", text, re.DOTALL)
        return str(quoted[-1]).strip() if quoted else text
    return text


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
