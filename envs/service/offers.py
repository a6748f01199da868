"""The worlds that a server is started with, their tasks, and where the environments of each live.

Tasks are listed on threads, one question at a time, and returned in pages. Listing them may take minutes, since a world
may have to make every board. So each world has a lock of its own, no reply is larger than a page, and the list is
cached: the second page costs nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from envs.service.homes import Home, WorldFailure
from envs.service.processes import ProcessHome
from envs.service.reasons import Reason, Refusal
from envs.service.schema import LISTING_SECONDS, MOST_TASKS, ServedWorld
from envs.service.threads import ThreadHome, on_a_thread
from turnwise.world import Limits, Split, Step, Task, World, make_world, whole_number, with_preset

HEAVY: Mapping[str, int] = {"sciworld": 1, "browser": 1}
"""Worlds that run in worker processes, and the default number of these."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Offer:
    """A world to serve. A client cannot make a server construct another: it selects one of these."""

    world: str
    """An installed world's name, or `module:Class`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 0
    """Number of worker processes that hold its environments; with 0 they run on threads of the server."""


class Listing:
    """Asks one world about its tasks. Every method raises Refusal if the world refuses, fails, or takes too long.

    A world need not support two threads at once, so questions wait for one another. A list that is ready too late for
    its request is still cached, for the next one.
    """

    def __init__(self, world: World, seconds: float = LISTING_SECONDS) -> None:
        self._world = world
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._longest: dict[Split, list[Task]] = {}

    async def page(self, split: Split, count: int, offset: int, limit: int) -> list[Task]:
        """Of the first `count` tasks of a split, at most `limit` from `offset` on."""
        if count > MOST_TASKS:
            raise Refusal(Reason.TASK_REFUSED, f"count must be at most {MOST_TASKS}; found {count}")
        tasks = self._longest.get(split, [])
        if len(tasks) < count or not tasks:
            tasks = await self._ask(partial(self._list, split, count))
        return tasks[offset : min(offset + limit, count)]

    async def limits_of(self, task: Task) -> Limits:
        """Limits under which a task is meant to be played."""
        return await self._ask(partial(self._world.limits_of, task))

    def _list(self, split: Split, count: int) -> list[Task]:
        """The longest list made so far, of at least `count` tasks."""
        tasks = self._longest.get(split, [])
        if len(tasks) < count or not tasks:
            tasks = self._longest[split] = self._world.tasks(split, count)
        return tasks

    async def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._seconds):
                await self._asking.acquire()
                answer = asyncio.wrap_future(on_a_thread(question))
                # Attached also when nobody waits any longer: until the answer comes the world is busy.
                answer.add_done_callback(self._answered)
                return await asyncio.shield(answer)
        except TimeoutError:
            message = f"the world must answer within {self._seconds:g} s what it is asked of its tasks; it did not"
            raise Refusal(Reason.WORLD_HUNG, message) from None
        except WorldFailure as error:
            refused = error.kind == "ValueError"
            raise Refusal(
                Reason.TASK_REFUSED if refused else Reason.WORLD_FAILED, error.message if refused else str(error)
            ) from error

    def _answered(self, answer: asyncio.Future[Answer]) -> None:
        self._asking.release()
        answer.exception()  # retrieved, so that asyncio does not report it as unhandled


@dataclass(frozen=True)
class Served:
    """A served world: its description, its tasks, and the place where its environments live."""

    description: ServedWorld
    listing: Listing
    home: Home


def read_offers(texts: Sequence[str], processes: Mapping[str, int] | None = None) -> list[Offer]:
    """Offers from texts such as `search`, `search={"hops": [1, 2]}`, `search=search.yaml` or `sokoban@ragen-large`.

    The parameters are YAML, which includes JSON; they are an overlay on the preset that is named after the @, and a
    client has to name all of them. `processes` gives the number of worker processes of a world and takes precedence
    over `HEAVY`. Raises ValueError for a text that is none of these, and for processes of a world that is not served.
    """
    pairs = [_read(text) for text in texts]
    if not pairs:
        raise ValueError("at least one world must be named; found none")
    counts = {
        world: whole_number(f"processes of {world!r}", count, 0, 64) for world, count in (processes or {}).items()
    }
    if strangers := sorted(set(counts) - {world for world, _ in pairs}):
        raise ValueError(f"processes must be of worlds that are served; found {strangers[0]!r}")
    where = {**HEAVY, **counts}
    return [Offer(world, parameters, where.get(world, 0)) for world, parameters in pairs]


ContentOf = Callable[[str, Mapping[str, Any]], str]
"""From a world's name and parameters to a digest of its code and of what it reads, which becomes part of its id."""


def unknown_content(world: str, parameters: Mapping[str, Any]) -> str:
    """Empty digest, for a server that does not know its worlds' code and data."""
    return ""


def served(offers: Sequence[Offer], content_of: ContentOf = unknown_content) -> list[Served]:
    """The served worlds, constructed.

    Raises ValueError for an unknown world or parameter, and for a world that is offered twice.
    """
    worlds = [_make(offer, content_of) for offer in offers]
    ids = [each.description.id for each in worlds]
    if twice := [each.description for place, each in enumerate(worlds) if each.description.id in ids[:place]]:
        raise ValueError(f"every world must be offered once; {twice[0].world!r} with {twice[0].parameters} is not")
    return worlds


def named_world(worlds: Mapping[str, Served], name: str) -> Served:
    """A served world by its id, or by its name where that names one only. Raises Refusal."""
    if name in worlds:
        return worlds[name]
    matches = [each for each in worlds.values() if name in (each.description.world, each.description.facts.name)]
    if len(matches) != 1:
        known = ", ".join(f"{each.description.world} ({each.description.id})" for each in worlds.values())
        raise Refusal(
            Reason.UNKNOWN_WORLD,
            f"the world must be the id, or the name if only one has it, of one of {known}; found {name!r}",
        )
    return matches[0]


def weighted_reward(step: Step, served: Served) -> float:
    """The step's rewards as one number, with the weights that the world declares."""
    declarations = served.description.facts.rewards
    return sum((value * declarations[name].weight for name, value in step.rewards.items()), 0.0)


def _make(offer: Offer, content_of: ContentOf) -> Served:
    try:
        world = make_world(offer.world, offer.parameters)
        world.require_programs()
    except (TypeError, ValueError) as error:
        raise ValueError(f"world {offer.world!r}: {error}") from error
    content = content_of(offer.world, offer.parameters)
    home: Home = ThreadHome(world)
    if offer.processes:
        home = ProcessHome(offer.world, offer.parameters, offer.processes)
    return Served(ServedWorld.of(offer.world, offer.parameters, world, content), Listing(world), home)


def _read(text: str) -> tuple[str, dict[str, Any]]:
    world_and_preset, equals, parameters = text.partition("=")
    world, _, preset = world_and_preset.partition("@")
    return world, with_preset(world, preset, _parameters(world, parameters) if equals else {})


def _parameters(world: str, text: str) -> dict[str, Any]:
    source = text if text.lstrip().startswith("{") else _content(Path(text))
    try:
        parameters = yaml.safe_load(source)
        json.dumps(parameters)
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(f"the parameters of {world!r} must be YAML or JSON; found {error}") from error
    if not isinstance(parameters, dict) or not all(isinstance(name, str) for name in parameters):
        raise ValueError(f"the parameters of {world!r} must be names with values; found {parameters!r}")
    return parameters


def _content(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"after the = must stand {{parameters}} or a file of them; found no file {str(path)!r}")
    return path.read_text(encoding="utf-8")
