"""The episodes that the service holds: their leases, their step numbers, and the reasons of those that were lost.

All of this runs on the server's event loop, so it needs no locks except the one that serialises the calls of an
episode. Only the worlds themselves run elsewhere: see `homes`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from envs.service.homes import LiveEnvironment, WorkerDied, WorldFailure
from envs.service.limits import ServiceLimits
from envs.service.metrics import Metrics
from envs.service.offers import Served
from envs.service.reasons import Reason, Refusal
from envs.service.schema import (
    Closed,
    Create,
    Created,
    Decided,
    EpisodeQuestion,
    EpisodeStanding,
    PlayStep,
    Seen,
    Stepped,
)
from turnwise.world import ContractError, Observation

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

CLOSING_SECONDS = 5.0
"""Seconds to wait, when the server ends, for worlds that are slow to close."""


@dataclass(eq=False)
class ServedEpisode:
    """One episode, with its latest requests and replies."""

    id: str
    request: Create
    served: Served
    renewed: float
    """Time of its last request, on the service's clock."""
    client: str = ""
    """The address of who created it."""
    live: LiveEnvironment | None = None
    first: Observation | None = None
    last: tuple[PlayStep, Stepped] | None = None
    decision: tuple[EpisodeQuestion, Decided] | None = None
    loss: Refusal | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def world(self) -> str:
        """Id of its world."""
        return self.request.world

    @property
    def number(self) -> int:
        """Number of the last step; 0 before the first."""
        return self.last[1].number if self.last else 0


class Episodes:
    """All episodes. Every method raises Refusal where it cannot do its work."""

    def __init__(
        self,
        worlds: Mapping[str, Served],
        limits: ServiceLimits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worlds, self._limits, self._metrics, self._clock = worlds, limits, metrics, clock
        self._open: dict[str, ServedEpisode] = {}
        self._by_key: dict[str, ServedEpisode] = {}
        self._lost_episodes: dict[str, ServedEpisode] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def lease_seconds(self) -> float:
        """Seconds without a request after which an episode is freed."""
        return self._limits.lease_seconds

    async def create(self, request: Create, client: str = "") -> Created:
        """Create an environment, once per key, for the client at an address."""
        episode = self._by_key.get(request.key) or self._admit(request, client)
        if episode.request != request:
            raise Refusal(Reason.KEY_REUSED, f"the key {request.key!r} must name one episode; it names another")
        async with self._turn_of(episode):
            if episode.live is None:
                episode.live = await self._ask(episode, episode.served.home.open(request.task, request.seed))
        return Created(episode=episode.id, lease_seconds=self._limits.lease_seconds)

    async def reset(self, id: str) -> Seen:
        """The first observation; repeatable until a step was played."""
        async with self._turn_of(self._find(id)) as episode:
            if episode.last is not None:
                raise Refusal(
                    Reason.RESET_OUT_OF_ORDER, "an episode can be reset before its first step; create another"
                )
            if episode.first is None:
                episode.first = await self._ask(episode, _live(episode).reset())
            return Seen(observation=episode.first)

    async def step(self, id: str, request: PlayStep) -> Stepped:
        """Play the next step, or repeat the reply to the last one."""
        async with self._turn_of(self._find(id)) as episode:
            _require_reset(episode)
            if episode.last is not None and episode.last[0] == request:
                self._metrics.repeated.labels(episode.world).inc()
                return episode.last[1]
            if request.number != episode.number + 1:
                raise Refusal(
                    Reason.STEP_OUT_OF_ORDER,
                    f"the step must be number {episode.number + 1}, or the last one again with the same action; found "
                    f"number {request.number}",
                )
            step = await self._ask(episode, _live(episode).step(request.action))
            episode.last = request, Stepped(number=request.number, step=step)
            episode.decision = None
            self._metrics.steps.labels(episode.world).inc()
            return episode.last[1]

    async def decide(self, id: str, question: EpisodeQuestion) -> Decided:
        """Action of a baseline policy now. A repeated question is answered from the record."""
        async with self._turn_of(self._find(id)) as episode:
            _require_reset(episode)
            known = episode.served.description.facts.baselines
            if question.baseline not in known:
                raise Refusal(
                    Reason.INVALID_REQUEST,
                    f"the baseline policy must be one of {', '.join(known)}; found {question.baseline!r}",
                )
            if episode.decision is None or episode.decision[0] != question:
                episode.decision = question, await self._ask(episode, _live(episode).decide(question))
            return episode.decision[1]

    async def standing(self, id: str) -> EpisodeStanding:
        """The latest observation and state of the episode."""
        async with self._turn_of(self._find(id)) as episode:
            first = _require_reset(episode)
            if episode.last is None:
                return EpisodeStanding(number=0, observation=first, terminated=False, truncated=False, success=False)
            step = episode.last[1].step
            return EpisodeStanding(
                number=episode.number,
                observation=step.observation,
                terminated=step.terminated,
                truncated=step.truncated,
                success=step.success,
            )

    async def close(self, id: str) -> Closed:
        """Free an episode at once, without waiting for a call that is under way."""
        self._lost_episodes.pop(id, None)
        episode = self._open.get(id)
        if episode is None:
            return Closed(closed=False)
        self._free(episode, "closed")
        return Closed(closed=True)

    def reap(self) -> int:
        """Free the episodes whose lease has expired, and return their number."""
        now = self._clock()
        for id in [id for id, episode in self._lost_episodes.items() if self._expired(episode, now)]:
            del self._lost_episodes[id]
        expired = [episode for episode in self._open.values() if self._expired(episode, now)]
        for episode in expired:
            self._free(episode, "expired")
        return len(expired)

    async def close_all(self) -> None:
        """Free every episode, and wait up to `CLOSING_SECONDS` for them to close."""
        for episode in list(self._open.values()):
            self._free(episode, "closed")
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSING_SECONDS)

    def _admit(self, request: Create, client: str) -> ServedEpisode:
        served = find_world(self._worlds, request.world)
        if self._full(client) is not None:
            self.reap()
        if (full := self._full(client)) is not None:
            raise Refusal(
                Reason.TOO_MANY_EPISODES,
                f"{full} episodes may be open, and are; close some, wait for the lease of those that were abandoned, "
                "or start the server with a higher limit",
            )
        episode = ServedEpisode(secrets.token_hex(16), request, served, self._clock(), client)
        self._open[episode.id] = self._by_key[request.key] = episode
        self._metrics.created.labels(episode.world).inc()
        self._metrics.open.labels(episode.world).inc()
        return episode

    def _full(self, client: str) -> str | None:
        """The limit that another episode of this client would exceed, in words."""
        if len(self._open) >= self._limits.episodes:
            return f"at most {self._limits.episodes}"
        most = self._limits.client_episodes
        if most is not None and sum(episode.client == client for episode in self._open.values()) >= most:
            return f"at most {most} of a client's"
        return None

    def _find(self, id: str) -> ServedEpisode:
        episode = self._open.get(id) or self._lost_episodes.get(id)
        if episode is None:
            raise Refusal(Reason.UNKNOWN_EPISODE, f"no episode {id!r} is open: it was closed, or its lease ran out")
        return episode

    @asynccontextmanager
    async def _turn_of(self, episode: ServedEpisode) -> AsyncIterator[ServedEpisode]:
        """Serialise the calls of an episode in the order of their arrival; each renews the lease."""
        async with episode.lock:
            if episode.loss is not None:
                raise Refusal(episode.loss.reason, episode.loss.message)
            self._find(episode.id)  # it may have been closed while this call waited
            try:
                yield episode
            finally:
                episode.renewed = self._clock()

    async def _ask(self, episode: ServedEpisode, work: Awaitable[Result]) -> Result:
        """Result of the world within the time limit. Otherwise the episode is lost, and Refusal is raised."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                return await work
        except TimeoutError:
            seconds = self._limits.call_seconds
            loss = Refusal(Reason.WORLD_HUNG, f"the world must answer within {seconds:g} s; it did not")
        except WorkerDied as error:
            loss = Refusal(Reason.WORKER_DIED, str(error))
        except WorldFailure as error:
            refused = episode.live is None and error.kind == "ValueError"
            if error.kind == ContractError.__name__:
                loss = Refusal(Reason.CONTRACT_BROKEN, error.message)
            else:
                loss = Refusal(Reason.TASK_REFUSED if refused else Reason.WORLD_FAILED, str(error))
        finally:
            self._metrics.world_seconds.labels(episode.world).observe(time.perf_counter() - began)
        episode.loss = loss
        if self._open.get(episode.id) is episode:
            self._lost_episodes[episode.id] = episode
            self._free(episode, loss.reason)
        raise loss

    def _free(self, episode: ServedEpisode, how: str) -> None:
        del self._open[episode.id]
        del self._by_key[episode.request.key]
        self._metrics.open.labels(episode.world).dec()
        self._metrics.freed.labels(episode.world, how).inc()
        if episode.live is not None:
            closing = asyncio.create_task(self._close(episode.live))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _close(self, live: LiveEnvironment) -> None:
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                await live.close()
        except (TimeoutError, WorldFailure) as error:  # harmless: the episode's data were delivered before
            logger.warning("a world failed to close: %s: %s", type(error).__name__, error)

    def _expired(self, episode: ServedEpisode, now: float) -> bool:
        return not episode.lock.locked() and now - episode.renewed >= self._limits.lease_seconds


def find_world(worlds: Mapping[str, Served], id: str) -> Served:
    """The served world with this id. Raises Refusal."""
    if id not in worlds:
        raise Refusal(Reason.UNKNOWN_WORLD, f"the world must be one of {', '.join(worlds)}; found {id!r}")
    return worlds[id]


def _live(episode: ServedEpisode) -> LiveEnvironment:
    assert episode.live is not None, "an episode has its environment before anybody knows its id"
    return episode.live


def _require_reset(episode: ServedEpisode) -> Observation:
    if episode.first is None:
        raise Refusal(Reason.RESET_OUT_OF_ORDER, "an episode must be reset before anything else is asked of it")
    return episode.first
