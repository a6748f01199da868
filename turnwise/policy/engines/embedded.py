"""The embedded engine: torch alone, in the process of its caller. It is the reference, and fast for small policies.

It samples any causal transformers model, without vLLM. Each step computes one token for every sequence in flight
(`turnwise.policy.engines.forward` says how), so a finished reply's world steps while the others go on.

**Slots.** An episode keeps a slot between its replies, with the keys and values of its context. Its next context is
compared with what the slot holds: only what follows the common prefix is computed, usually the last token of the reply
and the new observation. Where all slots are taken, an episode without one gets the slot that has been idle for longest.

**Sampling.** A token is drawn by inverting the cumulative distribution, one number of the engine's own generator per
token. The numbers are drawn in the order of the slots, so a reply depends on the weights, the seed and the order of
submissions alone.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.errors import NotFiniteError
from turnwise.policy.adapted import load_adapted, write_whole_policy
from turnwise.policy.decoder import is_known_decoder
from turnwise.policy.determinism import computing_threads
from turnwise.policy.engines.cache_size import embedded_slots
from turnwise.policy.engines.contract import Reply, Sampling, reply_limit, require_idle
from turnwise.policy.engines.forward import Forward, Integers, NewTokens, WholeForward
from turnwise.policy.engines.fused import FusedForward
from turnwise.policy.model import ALIGNMENT, merged_weights, named_precision, read_model

DRAWN_AT_ONCE = 2**22
"""Most probabilities that are in memory at once when tokens are drawn, unless one row alone has more."""


@dataclass(frozen=True)
class _Request:
    episode: int
    context: list[int]
    limit: int


class EmbeddedEngine:
    """The embedded engine; its interface is `turnwise.policy.engines.contract.Engine`."""

    def __init__(self, *, device: str, threads: int, context_length: int, maximum_episodes: int) -> None:
        """Make an engine without a policy. `turnwise.policy.engines.resident.make_engine` explains the arguments."""
        self.context_length = context_length
        self.tokens_generated = 0
        self._device, self._threads, self._maximum_episodes = torch.device(device), threads, maximum_episodes
        self._forward: Forward | None = None
        self._digest: str | None = None
        self._model: PreTrainedModel | None = None
        """The model whose weights are used in place; None: they were read from a folder."""
        self._sampling: Sampling | None = None
        self._generator = torch.Generator()
        self._clear()

    @property
    def slots(self) -> int | None:
        """The number of slots; see `Engine.slots`."""
        return len(self._held)

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""
        return len(self._waiting) + len(self._live)

    def load(self, policy: Path, digest: str, model: PreTrainedModel | None = None, base: Path | None = None) -> None:
        """Load the weights in `policy`, or use those of `model` in place; see `Engine.load`."""
        if digest == self._digest and (self._model is None or self._model is model):
            return
        require_idle(self, "load a policy")
        self._digest = None
        with computing_threads(self._threads), torch.inference_mode():
            loaded = model
            if loaded is None:  # an adapter's weights are yet to be merged
                loaded = _read_whole(policy, None, self._device) if base is None else load_adapted(base, policy)
            if is_known_decoder(loaded):
                cache = self._forward.cache if isinstance(self._forward, FusedForward) else None
                weights = engine_weights(loaded, policy, self._device)
                self._forward = FusedForward(loaded, weights, self.context_length, self._maximum_episodes, cache)
            else:
                if base is not None or model is not None:
                    loaded = _read_whole(policy, base, self._device)
                model, self._forward = None, WholeForward(loaded)
        self._digest, self._model = digest, model
        self._clear()

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout; see `Engine.begin`."""
        if self._digest is None:
            raise RuntimeError("a policy must be loaded before a rollout begins; none is: call load first")
        require_idle(self, "begin a rollout")
        self._clear()
        self._sampling = sampling
        self._generator.manual_seed(seed)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply; see `Engine.submit`."""
        limit = reply_limit(context, self.context_length, self._sampling, reply_tokens)
        if episode in self._requested:
            raise ValueError(f"an episode must await one reply at a time; episode {episode} awaits one already")
        self._requested.add(episode)
        self._waiting.append(_Request(episode, list(context), limit))

    def step(self) -> list[Reply]:
        """Sample one token of every reply in flight, as far as there are slots; see `Engine.step`."""
        if not self.in_flight:
            raise RuntimeError("a step needs something in flight; found nothing: submit a context first")
        assert self._forward is not None and self._sampling is not None
        self._take_in()
        live = np.array(sorted(self._live))
        new = self._new_tokens(live)
        with computing_threads(self._threads), torch.inference_mode():
            tokens, log_probabilities = self._draw(self._forward.next_logits(new))
        if not np.isfinite(log_probabilities).all():
            self.close()
            raise NotFiniteError("the policy's logits must be finite to be sampled from; they are not", "TW-not-finite")
        lengths = self._lengths[live]
        self._tokens[live, lengths], self._log_probabilities[live, lengths] = tokens, log_probabilities
        self._past[live] += new.counts
        self._lengths[live] = lengths + 1
        self.tokens_generated += len(live)
        complete = np.logical_or.reduce([tokens == end for end in self._sampling.end_tokens])
        finished = np.nonzero(complete | (lengths + 1 >= self._limit[live]))[0]
        replies = [self._finish(int(live[row]), bool(complete[row])) for row in finished]
        return sorted(replies, key=lambda reply: reply.episode)

    def close(self) -> None:
        """Free the model's memory."""
        self._forward = self._digest = self._model = self._sampling = None
        self._clear()

    def _clear(self) -> None:
        """Empty all slots."""
        slots = self._number_of_slots()
        self._waiting: deque[_Request] = deque()
        self._requested: set[int] = set()
        self._live: set[int] = set()
        self._idle: dict[int, None] = dict.fromkeys(range(slots))
        """Idle slots, in the order in which they became idle."""
        self._slot_of: dict[int, int] = {}
        self._held: list[tuple[int | None, list[int]]] = [(None, []) for _ in range(slots)]
        """The episode of each slot, and the tokens of its last context and reply."""
        self._fresh: dict[int, list[int]] = {}
        """New tokens of the slots whose reply has not begun."""
        self._past, self._lengths, self._limit = (np.zeros(slots, dtype=np.int64) for _ in range(3))
        """By slot: tokens whose keys and values it holds, tokens of its reply so far, and most tokens of its reply."""
        self._tokens = np.zeros((slots, 0), dtype=np.int64)
        self._log_probabilities = np.zeros((slots, 0))
        """The reply of each slot, so far."""

    def _number_of_slots(self) -> int:
        if not isinstance(self._forward, FusedForward):
            return self._maximum_episodes
        token_bytes = self._forward.cache.bytes_per_token
        return embedded_slots(self._device.type, token_bytes, self.context_length, self._maximum_episodes)

    def _take_in(self) -> None:
        """Give slots to waiting requests, in the order of their submission."""
        assert self._forward is not None
        if self._live and not self._forward.keeps_past:
            return
        while self._waiting and (self._idle or self._waiting[0].episode in self._slot_of):
            request = self._waiting.popleft()
            slot = self._slot_of.get(request.episode)
            if slot is None:
                slot = next(iter(self._idle))
                before = self._held[slot][0]
                if before is not None:
                    del self._slot_of[before]
                self._slot_of[request.episode] = slot
                self._past[slot] = 0
            del self._idle[slot]
            self._live.add(slot)
            common = _common_prefix(self._held[slot][1], request.context) if self._forward.keeps_past else 0
            self._past[slot] = min(common, len(request.context) - 1, self._past[slot])
            self._fresh[slot] = request.context[self._past[slot] :]
            self._held[slot] = (request.episode, request.context)
            self._lengths[slot], self._limit[slot] = 0, request.limit
            if request.limit > self._tokens.shape[1]:
                room = ((0, 0), (0, request.limit - self._tokens.shape[1]))
                self._tokens = np.pad(self._tokens, room)
                self._log_probabilities = np.pad(self._log_probabilities, room)

    def _new_tokens(self, live: Integers) -> NewTokens:
        """What the live slots grow by: the new part of a context, or the last sampled token."""
        if not self._fresh:
            return NewTokens(live, self._past[live], np.ones_like(live), self._tokens[live, self._lengths[live] - 1])
        rows = [self._fresh.get(slot) or [int(self._tokens[slot, self._lengths[slot] - 1])] for slot in live.tolist()]
        self._fresh.clear()
        counts = np.array([len(row) for row in rows])
        return NewTokens(live, self._past[live], counts, np.array([token for row in rows for token in row]))

    def _draw(self, logits: torch.Tensor) -> tuple[Integers, np.ndarray[Any, Any]]:
        """One token per row of `logits`, [sequences, vocabulary], and its log-probability in nats.

        The log-probability is that of the sampled distribution, or at temperature 1 when greedy.
        """
        assert self._sampling is not None
        temperature = self._sampling.temperature
        numbers = torch.rand(len(logits), 1, generator=self._generator, dtype=torch.float64).to(logits.device)
        draws = []
        rows = max(1, DRAWN_AT_ONCE // logits.shape[1])
        for part, numbers_of_part in zip(logits.split(rows), numbers.split(rows), strict=True):
            log_distribution = (part.float() / (temperature or 1.0)).log_softmax(dim=-1)
            if temperature == 0:
                tokens_of_part = log_distribution.argmax(dim=-1, keepdim=True)
            else:
                cumulative = log_distribution.exp().cumsum(dim=-1, dtype=torch.float64)
                tokens_of_part = torch.searchsorted(cumulative, numbers_of_part * cumulative[:, -1:], right=True)
                tokens_of_part.clamp_(max=logits.shape[1] - 1)
            draws.append((tokens_of_part, log_distribution.gather(1, tokens_of_part)))
        tokens, log_probabilities = (torch.cat(each).squeeze(1).cpu().numpy() for each in zip(*draws, strict=True))
        return tokens, log_probabilities

    def _finish(self, slot: int, complete: bool) -> Reply:
        """The finished reply in a slot, which becomes idle and keeps its sequence."""
        episode, context = self._held[slot]
        assert episode is not None
        tokens = self._tokens[slot, : self._lengths[slot]].tolist()
        self._held[slot] = (episode, context + tokens)
        self._live.discard(slot)
        self._idle[slot] = None
        self._requested.discard(episode)
        log_probabilities = self._log_probabilities[slot, : self._lengths[slot]].tolist()
        return Reply(episode, tuple(tokens), tuple(log_probabilities), complete)


def _read_whole(policy: Path, base: Path | None, device: torch.device) -> PreTrainedModel:
    """The model in a folder, with an adapter merged, in float32 on a CPU and in its own precision elsewhere."""
    if base is not None:
        with TemporaryDirectory() as folder:
            write_whole_policy(base, policy, Path(folder))
            return _read_whole(Path(folder), None, device)
    return read_model(policy, torch.float32 if device.type == "cpu" else "auto").to(device).eval()


def engine_weights(model: PreTrainedModel, policy: Path, device: torch.device) -> Mapping[str, torch.Tensor]:
    """The tensors of `model` by name: its own, except where precision, device or alignment are not the engine's.

    Tied tensors stay one. Aligned, since the rounding of a product with a vector depends on where in memory a matrix
    begins.
    """
    dtype = torch.float32 if device.type == "cpu" else named_precision(policy)
    # A tensor that was made for this call alone is gone when the next one is made, which may have its address then.
    copies: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in merged_weights(model):
        source, copy = copies.get(id(tensor), (None, None))
        if source is None or copy is None or source() is not tensor:
            copy = tensor.detach().to(device, dtype)
            copy = copy.clone() if copy.data_ptr() % ALIGNMENT else copy
            copies[id(tensor)] = (weakref.ref(tensor), copy)
        weights[name] = copy
    return weights


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of leading tokens that two sequences share."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    return next(place for place in range(shorter) if first[place] != second[place])
