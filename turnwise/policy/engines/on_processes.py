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

Questions and answers are JSON over a pipe. A process that dies ends all of them: the call raises `EngineLost`, and the
next `load` starts new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise import errors, seeding
from turnwise.errors import EngineLost, TurnwiseError
from turnwise.policy.child_process import Child, ended_with, sentence_for_loss
from turnwise.policy.engines.contract import Reply, Sampling, reply_limit
from turnwise.policy.engines.spread import EngineSpread

MODULE = "turnwise.policy.engines.start_worker"


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
        self._children: list[Child] = []
        self._slots: int | None = None
        self._digest: str | None = None
        self._sampling: Sampling | None = None
        self._awaited: dict[int, int] = {}
        """The engine of each episode that awaits a reply."""
        self._engine_of: dict[int, int] = {}
        """The engine of each episode of the rollout, by its group."""
        self._new: dict[int, list[Any]] = {}
        """By engine, what was submitted since the last step."""

    @property
    def slots(self) -> int | None:
        """The slots of all engines together; see `Engine.slots`."""
        return self._slots

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""
        return len(self._awaited)

    @property
    def process_ids(self) -> list[int]:
        """Of the engines' processes, in order."""
        return [each.process_id for each in self._children]

    def load(self, policy: Path, digest: str, model: PreTrainedModel | None = None, base: Path | None = None) -> None:
        """Have every engine read the weights in `policy`; see `Engine.load`. `model` is in this process: of no use."""
        self._must_be_idle("load a policy")
        if not all(each.alive for each in self._children):
            self.close()
        if not self._children:
            self._start()
        slots = self._ask_all(lambda engine: ["load", str(policy), digest, None if base is None else str(base)])
        self._slots = None if None in slots else sum(slots)
        self._digest = digest

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout, with a seed of its own for each engine; see `Engine.begin`."""
        if self._digest is None:
            raise RuntimeError("a policy must be loaded before a rollout begins; none is: call load first")
        self._must_be_idle("begin a rollout")
        self._forget()
        self._sampling = sampling
        values = [sampling.temperature, sampling.max_reply_tokens, list(sampling.end_tokens)]
        self._ask_all(lambda engine: ["begin", self._seed_of(engine, seed), *values])

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
        self._new.setdefault(engine, []).append([episode, list(context), reply_tokens])

    def step(self) -> list[Reply]:
        """Run one step of every engine that has something in flight; see `Engine.step`."""
        if not self._awaited:
            raise RuntimeError("a step needs something in flight; found nothing: submit a context first")
        busy = sorted(set(self._awaited.values()))
        new, self._new = self._new, {}
        replies = [
            Reply(episode, tuple(tokens), tuple(log_probabilities), complete)
            for found in self._ask({engine: ["step", new.get(engine, [])] for engine in busy})
            for episode, tokens, log_probabilities, complete in found
        ]
        for reply in replies:
            del self._awaited[reply.episode]
            self.tokens_generated += len(reply.tokens)
        return sorted(replies, key=lambda reply: reply.episode)

    def sleep(self) -> None:
        """Have the engines give memory back; see `Sleeps.sleep`."""
        if self._digest is not None:
            self._must_be_idle("sleep")
            self._ask_all(lambda engine: ["sleep"])

    def close(self) -> None:
        """End the processes."""
        if self._children:
            self._ending()
        self._children, self._digest, self._slots = [], None, None
        self._forget()

    def _forget(self) -> None:
        """Forget the rollout."""
        self._sampling = None
        self._awaited, self._engine_of, self._new = {}, {}, {}

    def _start(self) -> None:
        numbers = range(self._spread.engines)
        arguments = [json.dumps(self._options)]
        self._children = [Child(MODULE, arguments, self._spread.environment(each, self._device)) for each in numbers]
        self._ending = ended_with(self, self._children)

    def _seed_of(self, engine: int, seed: int) -> int:
        """One engine by itself has the seed that it would have in this process."""
        return seed if self._spread.engines == 1 else seeding.derive(seed, "engine", engine)

    def _ask_all(self, question: Callable[[int], list[Any]]) -> list[Any]:
        return self._ask({engine: question(engine) for engine in range(self._spread.engines)})

    def _ask(self, questions: dict[int, list[Any]]) -> list[Any]:
        """The answers of the engines that are asked, in their order. All are asked before one is waited for."""
        try:
            try:
                for engine, question in questions.items():
                    self._children[engine].asks.send_bytes(json.dumps(question).encode())
                said = {}
                for engine in questions:
                    said[engine] = json.loads(self._children[engine].asks.recv_bytes())
            except (EOFError, OSError):
                raise EngineLost(sentence_for_loss(self._children, engine, "engine", "a rollout is sampled")) from None
            for engine, (kind, answer) in said.items():
                if kind != "answer":
                    raise _raised(engine, kind, answer)
        except BaseException:
            self.close()  # some have done what the others have not
            raise
        return [answer for _, answer in said.values()]

    def _must_be_idle(self, purpose: str) -> None:
        if self._awaited:
            raise RuntimeError(
                f"nothing may be in flight to {purpose}; found {len(self._awaited)} contexts: step until they are done"
            )


def _raised(engine: int, kind: str, message: str) -> Exception:
    """The exception that an engine's process has raised: one of ours by its name, or else what it printed."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, TurnwiseError):
        return found(message)
    return RuntimeError(f"In engine process {engine}:\n{message}")
