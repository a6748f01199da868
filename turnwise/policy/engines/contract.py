"""What samples replies: a small contract, and how an engine is chosen.

An engine is token-in, token-out. It holds one policy's weights, takes contexts, and runs them forward step by step; a
reply is handed over at the step at which it finished, so that its world can be stepped while others are still being
sampled. What it samples is a function of the weights, the seed and the order of the submissions, and of nothing else.

Two engines keep the contract: `vllm` (the default) and `transformers` (the reference in the tests, and the way out
where vLLM does not install). They sample from the same distribution, but not the same tokens: their random numbers
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from turnwise.errors import ConfigurationError

EngineName = Literal["vllm", "transformers"]


@dataclass(frozen=True)
class Sampling:
    """How replies are sampled: from the full distribution, since a policy gradient differentiates exactly that one."""

    temperature: float
    """Logits are divided by it. 0 is greedy."""
    max_reply_tokens: int
    end_tokens: tuple[int, ...]
    """A reply ends with the first of these; it is part of the reply."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigurationError(f"temperature must be 0 (greedy) or above; found {self.temperature}")
        if self.max_reply_tokens < 1:
            raise ConfigurationError(f"max_reply_tokens must be at least 1; found {self.max_reply_tokens}")
        if not self.end_tokens:
            raise ConfigurationError("end_tokens must name the token that ends a reply; found none")


@dataclass(frozen=True)
class Reply:
    """One finished reply."""

    episode: int
    """As it was submitted."""
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """Per token, in nats, of the distribution it was sampled from, temperature included. A greedy reply is drawn from a
    point mass, whose log-probabilities would all be 0: it carries those of the distribution at temperature 1."""
    complete: bool
    """It ended with an end token (which is the last of `tokens`), rather than at the limit on its length."""


class Engine(Protocol):
    """Samples replies from one policy at a time."""

    @property
    def in_flight(self) -> int:
        """How many submitted contexts await their reply."""

    @property
    def context_length(self) -> int:
        """The most tokens that a context and its reply may have together."""

    @property
    def tokens_generated(self) -> int:
        """Reply tokens sampled since the engine was made."""

    def load(self, policy: Path, digest: str) -> None:
        """Hold the weights in `policy`, a folder in Hugging Face's layout (config.json, model.safetensors).

        Nothing happens when `digest` names what is held already. Raises RuntimeError when replies are in flight.
        """

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout: seeds torch's global generator and empties the prefix cache.

        Raises RuntimeError when no policy is loaded, or when replies are in flight.
        """

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Ask for a reply to a context of token ids, of at most `reply_tokens` tokens; None: of sampling's maximum.

        Raises ValueError when the context leaves no room for a reply: the agent must end such an episode.
        """

    def step(self) -> list[Reply]:
        """Run one engine step and return the replies that finished at it, in the order of their episodes.

        Raises RuntimeError when nothing is in flight.
        """

    def close(self) -> None:
        """Free what the engine holds. It cannot be used afterwards."""


def reply_limit(
    context: Sequence[int], context_length: int, sampling: Sampling | None, reply_tokens: int | None
) -> int:
    """The most tokens of a reply to a context, of what the contract's `submit` was asked for; `sampling` is None where
    no rollout has begun.

    Raises RuntimeError before a rollout, and ValueError where there is no room for a reply.
    """
    if sampling is None:
        raise RuntimeError("a rollout must begin before contexts are submitted: call begin first")
    room = context_length - len(context)
    if room < 1 or not context:
        raise ValueError(
            f"a context must have from 1 to {context_length - 1} tokens; found {len(context)}: end the episode when "
            "its next turn does not fit"
        )
    return min(room, sampling.max_reply_tokens if reply_tokens is None else reply_tokens)
