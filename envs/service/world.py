"""A world that is played on a server of `turnwise serve`, exactly as it would be played here.

Everything about it comes from the server: instruction, rewards, limits, baseline policies, tasks and even the name are
those of the served world, so that a task set made here has the digest of one made there. They are pinned: the server
identifies a world by a digest of its whole description, and the parameter `version` must name the world's version, so
that results under other rules are never taken for these.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from envs.service.client import Answer, ServiceClient, ServiceFault, shared_client
from envs.service.generator_state import GeneratorState
from envs.service.plain import plain_text
from envs.service.reasons import Reason
from envs.service.schema import (
    LISTING_SECONDS,
    MOST_AT_ONCE,
    SCHEMA_VERSION,
    AboutTask,
    Closed,
    Create,
    Created,
    Decided,
    EpisodeQuestion,
    PlayStep,
    Seen,
    ServedWorld,
    Stepped,
    TaskLimits,
    Tasks,
    Worlds,
)
from turnwise.world import (
    ContractError,
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    http_address,
    positive,
    whole_number,
)


class RemoteWorld(World):
    """Play a world that another process serves.

    Parameters: `url`, the server's address, such as `http://127.0.0.1:8600`; `world`, the name under which the server
    serves the world; `parameters`, those of that world, with which the server must have been started; `version`, the
    version that the world must have; `seconds`, the timeout of one attempt of a request; `retries`, how often a request
    is repeated; `token_variable`, the environment variable that holds the server's token, if it wants one.

    Keep `seconds` x (`retries` + 1) below `rollout.world_seconds`: after that the agent's host gives an attempt up. A
    step that takes longer than `seconds` is not lost: the repeated request waits for the reply to the first. Raises
    ValueError if no such world is served, at once and before anything is computed.
    """

    name: ClassVar[str] = "remote"
    version: ClassVar[str] = ""
    rewards: ClassVar[Mapping[str, Reward]] = {}

    def __init__(
        self,
        *,
        url: str,
        world: str,
        version: str,
        parameters: Mapping[str, Any] | None = None,
        seconds: float = 8.0,
        retries: int = 2,
        token_variable: str = "TURNWISE_SERVICE_TOKEN",
    ) -> None:
        whole_number("retries", retries, 0, 100)
        self.client = shared_client(http_address("url", url), positive("seconds", seconds), retries, token_variable)
        served = _served(self.client, token_variable, world, dict(parameters or {}))
        if served.facts.version != version:
            raise ValueError(
                f"version must be that of the world which is served; found {version!r}, and {world!r} at {url} has the "
                f"version {served.facts.version!r}"
            )
        self.served = served.id
        self._facts = facts = served.facts
        self._limits_of: dict[str, Limits] = {}
        # One class serves all worlds, so the attributes of a world are set on the instance.
        self.name = facts.name  # type: ignore[misc]
        self.version = facts.version  # type: ignore[misc]
        self.verbs = None if facts.verbs is None else frozenset(facts.verbs)  # type: ignore[misc]
        self.baselines = tuple(facts.baselines)
        self.instruction, self.grammar, self.limits = facts.instruction, facts.grammar, facts.limits
        self.names_states = facts.names_states
        self.primary_metric = facts.primary_metric  # type: ignore[misc]
        self.oracle_success = facts.oracle_success  # type: ignore[misc]
        self.rewards = facts.rewards  # type: ignore[misc]
        self.columns = tuple(facts.columns)  # type: ignore[misc]

    def limits_of(self, task: Task) -> Limits:
        """Limits of one task, requested only if they differ between tasks. Raises ServiceFault."""
        if not self._facts.limits_differ:
            return self.limits
        if task.id not in self._limits_of:
            with _refusals():
                answer = self.client.post(f"/worlds/{self.served}/limits", TaskLimits, AboutTask(task=task))
            self._limits_of[task.id] = answer.limits
        return self._limits_of[task.id]

    def split_size(self, split: Split) -> int | None:
        """Number of tasks of a split; None if it is unbounded."""
        return self._facts.split_sizes[split]

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, fetched in pages.

        Raises ValueError where the world does, and ServiceFault.

        The server lists `count` tasks at most once, for the first page, and lists at most `schema.MOST_TASKS`.
        """
        with _refusals():
            pages = [self._page(split, count, offset) for offset in range(0, max(count, 1), MOST_AT_ONCE)]
        return [task for page in pages for task in page]

    def _page(self, split: Split, count: int, offset: int) -> list[Task]:
        path, seconds = f"/worlds/{self.served}/tasks", LISTING_SECONDS + 60.0  # the server gives up first, and says so
        query = {"split": split, "count": count, "offset": offset, "limit": MOST_AT_ONCE}
        page = self.client.get(path, Tasks, seconds=seconds, **query).tasks
        page_size = min(MOST_AT_ONCE, count - offset)
        if len(page) != page_size:
            raise ServiceFault(f"a page of tasks must have {page_size}; found {len(page)}: the server must know pages")
        return page

    def make(self, task: Task, seed: int) -> RemoteEnvironment:
        """An episode on the server. Raises ValueError for a task of another world, and ServiceFault."""
        # The key only identifies the request: a reply that is lost on the way does not create a second episode.
        request = Create(world=self.served, task=task, seed=seed, key=secrets.token_hex(16))
        with _refusals():
            return RemoteEnvironment(self.client, self.client.post("/episodes", Created, request).episode)

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """The server's id of the world, a digest of its whole description. Raises as the constructor does."""
        return {"served": cls(**parameters).served}

    def attribution(self) -> str | None:
        """Attribution of the served world's data."""
        return self._facts.attribution


class RemoteEnvironment(Environment):
    """One episode on the server.

    Every call raises ServiceFault if the server does not answer it, and ContractError if it answers what the contract
    does not allow.
    """

    def __init__(self, client: ServiceClient, episode: str) -> None:
        self._client = client
        self._path = f"/episodes/{episode}"
        self._number = 0

    def reset(self) -> Observation:
        """The first observation."""
        return self._post("reset", Seen).observation

    def step(self, action: str) -> Step:
        """Play one action under the next number: however often the request is sent, it is played once."""
        request = PlayStep(number=self._number + 1, action=plain_text(action))
        stepped = self._post("step", Stepped, request)
        self._number = stepped.number
        return stepped.step

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The served world's oracle."""
        question = EpisodeQuestion(baseline="oracle", remaining=remaining)
        return self._post("decide", Decided, question).decision

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The served world's random baseline policy."""
        return self.decide("random", generator, remaining)

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Action of a baseline policy of the served world.

        It draws on the server what it would draw here: the generator's state travels there and back.
        """
        question = EpisodeQuestion(baseline=baseline, remaining=remaining, generator=GeneratorState.of(generator))
        answer = self._post("decide", Decided, question)
        if answer.generator is not None:
            answer.generator.put_into(generator)
        return answer.decision

    def close(self) -> None:
        """Free the episode. It is no error if the server has freed it already."""
        self._client.delete(self._path, Closed)

    def _post(self, what: str, expected: type[Answer], request: BaseModel | None = None) -> Answer:
        with _refusals():
            return self._client.post(f"{self._path}/{what}", expected, request)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise as the world itself does: ValueError for a task that it refuses, ContractError for what breaks it."""
    try:
        yield
    except ServiceFault as fault:
        if fault.code == Reason.CONTRACT_BROKEN:
            raise ContractError(str(fault), "TW-contract-broken") from fault
        if fault.code == Reason.TASK_REFUSED:
            raise ValueError(str(fault)) from fault
        raise


def _served(client: ServiceClient, token_variable: str, world: str, parameters: dict[str, Any]) -> ServedWorld:
    """The served world with this name and these parameters. Raises ValueError."""
    try:
        served_worlds = client.get("/worlds", Worlds).worlds
    except ServiceFault as fault:
        hints: dict[str, str] = {
            Reason.UNAUTHORISED: f": set {token_variable} to the server's token",
            Reason.UNKNOWN_ROUTE: f": it must speak version {SCHEMA_VERSION} of the schema, as this code's server does",
        }
        hint = hints.get(fault.code, "")
        raise ValueError(f"url must be the address of a running `turnwise serve`; {fault}{hint}") from fault
    wanted = json.dumps(parameters, sort_keys=True)
    for each in served_worlds:
        if each.world == world and json.dumps(each.parameters, sort_keys=True) == wanted:
            return each
    descriptions = "; ".join(f"{each.world} with {json.dumps(each.parameters)}" for each in served_worlds)
    raise ValueError(
        f"world and parameters must be those that the server was started with, which are {descriptions}; found {world} "
        f"with {json.dumps(parameters)}"
    )
