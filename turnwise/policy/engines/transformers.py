"""The reference engine: a transformers model with a simple decoding loop. It does not need vLLM.

One step samples a batch of waiting contexts, as many as run concurrently, to the end of all their replies; so each
world waits for the slowest reply of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from turnwise.policy.engines.contract import Reply, Sampling, reply_limit
from turnwise.policy.threads import computing_threads


@dataclass(frozen=True)
class _Request:
    episode: int
    context: tuple[int, ...]
    limit: int


class TransformersEngine:
    """The engine on transformers; its interface is `turnwise.policy.engines.contract.Engine`."""

    def __init__(self, *, device: str, threads: int, context_length: int, maximum_episodes: int) -> None:
        """Make an engine without a policy. `turnwise.policy.engines.resident.make_engine` explains the arguments."""
        self.context_length = context_length
        self.tokens_generated = 0
        self._device, self._threads, self._maximum_episodes = torch.device(device), threads, maximum_episodes
        self._model: PreTrainedModel | None = None
        self._digest: str | None = None
        self._waiting: list[_Request] = []
        self._sampling: Sampling | None = None

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""
        return len(self._waiting)

    def load(self, policy: Path, digest: str) -> None:
        """Load the weights in `policy`; see `Engine.load`."""
        if digest == self._digest:
            return
        self._must_be_idle("load a policy")
        dtype = torch.float32 if self._device.type == "cpu" else "auto"
        model = AutoModelForCausalLM.from_pretrained(str(policy), dtype=dtype, attn_implementation="sdpa")
        self._model = model.to(self._device).eval()
        self._digest = digest

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout; see `Engine.begin`."""
        if self._model is None:
            raise RuntimeError("a policy must be loaded before a rollout begins; none is: call load first")
        self._must_be_idle("begin a rollout")
        self._sampling = sampling
        torch.manual_seed(seed)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply; see `Engine.submit`."""
        limit = reply_limit(context, self.context_length, self._sampling, reply_tokens)
        self._waiting.append(_Request(episode, tuple(context), limit))

    def step(self) -> list[Reply]:
        """Sample up to `maximum_episodes` waiting replies to their ends; see `Engine.step`."""
        if not self._waiting:
            raise RuntimeError("a step needs something in flight; found nothing: submit a context first")
        batch, self._waiting = self._waiting[: self._maximum_episodes], self._waiting[self._maximum_episodes :]
        with computing_threads(self._threads), torch.no_grad():
            replies = self._sample(batch)
        self.tokens_generated += sum(len(reply.tokens) for reply in replies)
        return sorted(replies, key=lambda reply: reply.episode)

    def close(self) -> None:
        """Free the model's memory."""
        self._model = self._digest = self._sampling = None
        self._waiting.clear()

    def _sample(self, batch: Sequence[_Request]) -> list[Reply]:
        assert self._model is not None and self._sampling is not None
        tokens: list[list[int]] = [[] for _ in batch]
        log_probabilities: list[list[float]] = [[] for _ in batch]
        complete = [False] * len(batch)
        inputs, attended = self._padded_on_the_left(batch)
        positions = (attended.cumsum(dim=1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        running = set(range(len(batch)))
        while running:
            logits = self._model(
                input_ids=inputs, attention_mask=attended, position_ids=positions, past_key_values=cache, use_cache=True
            ).logits[:, -1]
            chosen, chosen_log_probabilities = _choose(logits.float(), self._sampling.temperature)
            for row in sorted(running):
                tokens[row].append(int(chosen[row]))
                log_probabilities[row].append(float(chosen_log_probabilities[row]))
                complete[row] = tokens[row][-1] in self._sampling.end_tokens
                if complete[row] or len(tokens[row]) == batch[row].limit:
                    running.remove(row)
            inputs = chosen.unsqueeze(1)
            positions = positions[:, -1:] + 1
            attended = torch.cat([attended, attended.new_ones(len(batch), 1)], dim=1)
        return [
            Reply(request.episode, tuple(tokens[row]), tuple(log_probabilities[row]), complete[row])
            for row, request in enumerate(batch)
        ]

    def _padded_on_the_left(self, batch: Sequence[_Request]) -> tuple[torch.Tensor, torch.Tensor]:
        """The contexts padded on the left, so that all end in the last column, and the attention mask.

        Both are [episodes, longest].
        """
        longest = max(len(request.context) for request in batch)
        inputs = torch.zeros((len(batch), longest), dtype=torch.long)
        attended = torch.zeros((len(batch), longest), dtype=torch.long)
        for row, request in enumerate(batch):
            inputs[row, longest - len(request.context) :] = torch.tensor(request.context)
            attended[row, longest - len(request.context) :] = 1
        return inputs.to(self._device), attended.to(self._device)

    def _must_be_idle(self, purpose: str) -> None:
        if self._waiting:
            raise RuntimeError(
                f"nothing may be in flight to {purpose}; found {len(self._waiting)} contexts: step until they are done"
            )


def _choose(logits: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per row of `logits`, [episodes, vocabulary], and its log-probability in nats: both [episodes].

    The log-probability is that of the sampled distribution, or at temperature 1 when greedy.
    """
    log_distribution = (logits / (temperature or 1.0)).log_softmax(dim=-1)
    if temperature == 0:
        chosen = log_distribution.argmax(dim=-1)
    else:
        chosen = torch.multinomial(log_distribution.exp(), 1).squeeze(1)
    return chosen, log_distribution.gather(1, chosen.unsqueeze(1)).squeeze(1)
