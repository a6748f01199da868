"""Several engines that sample one rollout, each in a process of its own: `compute.engines`, `compute.tensor_parallel`.

    this process                           N processes: turnwise.policy.engines.worker
    begin(seed)              ->            begin(seed of the engine)
    share_out(groups)                      group i of the rollout belongs to engine i modulo N
    submit(episode, context)               kept until the next step
    step()                   ->            the new contexts of its own episodes, then one step
                             <-            the replies that finished in it

**Nothing depends on which engine is faster.** All engines that have something in flight take a step together, and the
replies of a step are sorted by episode, so the loop sees one engine with more room. What an engine samples is a
function of its weights, its own seed and the order of its own submissions. That is another function than that of one
engine for all episodes, since an engine draws its numbers in an order that its other episodes take part in, and sums
round differently with other rows: a number of engines repeats to the bit, and is part of the cache key.

A group stays on one engine, where its episodes share the beginnings of their contexts.

A process that dies ends all of them: the call raises `EngineLost`, and the next `load` starts new ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise import seeding
from turnwise.child_process import ChildProcess, ProcessGroup
from turnwise.config.model_settings import Compute
from turnwise.errors import EngineLost
from turnwise.policy.engines.contract import Reply, Sampling, reply_limit, require_idle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODULE = "turnwise.policy.engines.worker"


@dataclass(frozen=True)
class EngineSpread:
    """How many engines there are, and where. Default: one, in the process of its caller."""

    engines: int = 1
    tensor_parallel: int = 1
    """Devices that one engine computes on together."""
    first_card: int = 0
    """The card of the first engine."""

    @classmethod
    def of(cls, compute: Compute) -> EngineSpread:
        """The spread that the section `compute` asks for."""
        return cls(compute.engines, compute.tensor_parallel, compute.first_engine_card)

    @property
    def in_processes(self) -> bool:
        """Whether engines have processes of their own."""
        return self != EngineSpread()

    def environment(self, engine: int, device: str, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The environment of the process of one engine, which sees its own cards alone."""
        if device == "cpu":
            return dict(outer)
        first = self.first_card + engine * self.tensor_parallel
        places = range(first, first + self.tensor_parallel)
        visible = [each for each in outer.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        cards = [visible[place] for place in places] if visible else [str(place) for place in places]
        return {**outer, "CUDA_VISIBLE_DEVICES": ",".join(cards)}


ALONE = EngineSpread()
"""One engine, in the process of its caller."""


class EnginesOnProcesses:
    """Engines in processes of their own, as one; its interface is `turnwise.policy.engines.contract.Engine`."""

    def __init__(self, spread: EngineSpread, *, device: str, context_length: int, **options: Any) -> None:
        """Store the arguments, those of `turnwise.policy.engines.resident.make_engine`, without starting a process."""
        self.context_length = context_length
        self.tokens_generated = 0
        self._spread, self._device = spread, device
        self._options = {
            **options,
            "device": device,
            "context_length": context_length,
            "tensor_parallel": spread.tensor_parallel,
        }
        self._processes: ProcessGroup | None = None
        self.slots: int | None = None
        """Of all engines together; see `Engine.slots`."""
        self._digest: str | None = None
        self._sampling: Sampling | None = None
        self._awaited: dict[int, int] = {}
        """The engine of each episode that awaits a reply."""
        self._engine_of: dict[int, int] = {}
        """The engine of each episode of the rollout, by its group."""
        self._new: dict[int, list[tuple[int, list[int], int | None]]] = {}
        """By engine, what was submitted since the last step."""

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""
        return len(self._awaited)

    @property
    def process_ids(self) -> list[int]:
        """Of the engines' processes, in order."""
        return [] if self._processes is None else self._processes.process_ids

    def load(self, policy: Path, digest: str, model: PreTrainedModel | None = None, base: Path | None = None) -> None:
        """Have every engine read the weights in `policy`; see `Engine.load`. `model` is in this process: of no use."""
        require_idle(self, "load a policy")
        if self._processes is None or not self._processes.alive:
            self._start()
        slots = self._ask_all("load", policy, digest, base)
        self.slots = None if None in slots else sum(slots)
        self._digest = digest

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout, with a seed of its own for each engine; see `Engine.begin`."""
        if self._digest is None:
            raise RuntimeError("a policy must be loaded before a rollout begins; none is: call load first")
        require_idle(self, "begin a rollout")
        self._forget()
        self._sampling = sampling
        # One engine by itself has the seed that it would have in this process.
        engines = range(self._spread.engines)
        seeds = [seed] if len(engines) == 1 else [seeding.derive(seed, "engine", engine) for engine in engines]
        self._ask({engine: ("begin", seeds[engine], sampling) for engine in engines})

    def share_out(self, groups: Sequence[int]) -> None:
        """Say to which group each episode of the rollout belongs; see `Shares.share_out`."""
        place = {group: place for place, group in enumerate(sorted(set(groups)))}
        self._engine_of = {episode: place[group] % self._spread.engines for episode, group in enumerate(groups)}

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply; see `Engine.submit`. It is sent with the next step."""
        reply_limit(context, self.context_length, self._sampling, reply_tokens)
        if episode in self._awaited:
            raise ValueError(f"an episode must await one reply at a time; episode {episode} awaits one already")
        engine = self._awaited[episode] = self._engine_of.get(episode, episode % self._spread.engines)
        self._new.setdefault(engine, []).append((episode, list(context), reply_tokens))

    def step(self) -> list[Reply]:
        """Run one step of every engine that has something in flight; see `Engine.step`."""
        if not self._awaited:
            raise RuntimeError("a step needs something in flight; found nothing: submit a context first")
        busy = sorted(set(self._awaited.values()))
        new, self._new = self._new, {}
        answers = self._ask({engine: ("step", new.get(engine, [])) for engine in busy})
        replies: list[Reply] = [reply for replies in answers for reply in replies]
        for reply in replies:
            del self._awaited[reply.episode]
            self.tokens_generated += len(reply.tokens)
        return sorted(replies, key=lambda reply: reply.episode)

    def sleep(self) -> None:
        """Have the engines give memory back; see `Sleeps.sleep`."""
        if self._digest is not None:
            require_idle(self, "sleep")
            self._ask_all("sleep")

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()
        self._processes, self._digest, self.slots = None, None, None
        self._forget()

    def _forget(self) -> None:
        """Forget the rollout."""
        self._sampling = None
        self._awaited, self._engine_of, self._new = {}, {}, {}

    def _start(self) -> None:
        self.close()
        environments = [self._spread.environment(engine, self._device) for engine in range(self._spread.engines)]
        children = [ChildProcess(MODULE, self._options, environment=each) for each in environments]
        self._processes = ProcessGroup("engine", "a rollout is sampled", children)

    def _ask_all(self, *request: Any) -> list[Any]:
        return self._ask(dict.fromkeys(range(self._spread.engines), request))

    def _ask(self, requests: dict[int, tuple[Any, ...]]) -> list[Any]:
        """The answers of the engines that are asked, in their order. Where one fails all end."""
        assert self._processes is not None, "they are started when a policy is loaded"
        try:
            answers, failures = self._processes.ask(requests)
            if (loss := self._processes.loss(failures)) is not None:
                raise EngineLost(loss, "TW-engine-lost")
            for _, error in sorted(failures.items()):
                raise error
        except BaseException:
            self.close()  # some have done what the others have not
            raise
        return [answers[engine] for engine in requests]
