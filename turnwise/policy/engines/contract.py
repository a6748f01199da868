"""The interface of an engine, which samples replies from a policy.

An engine is token-in, token-out. It holds one policy's weights, takes contexts, and runs them forward step by step. It
returns a reply at the step at which the reply finished, so that its world can be stepped while others are still being
sampled. The replies are a function of the weights, the seed and the order of the submissions, and of nothing else.

There are two engines: `vllm` (the default, and what a GPU uses) and `embedded` (the reference; faster for tiny policies
on a CPU, and the alternative where vLLM does not install). They sample from the same distribution, but not the same
tokens: their random numbers differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from turnwise.errors import ConfigurationError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Sampling:
    """How replies are sampled: always from the full distribution, the one that a policy gradient differentiates.

    Raises ConfigurationError for values out of range.
    """

    temperature: float
    """The logits are divided by it. 0 is greedy."""
    max_reply_tokens: int
    end_tokens: tuple[int, ...]
    """Token ids that end a reply: it ends with the first one that is sampled, which is part of the reply."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigurationError(
                f"temperature must be 0 (greedy) or above; found {self.temperature}", "TW-option-range"
            )
        if self.max_reply_tokens < 1:
            raise ConfigurationError(
                f"max_reply_tokens must be at least 1; found {self.max_reply_tokens}", "TW-option-range"
            )
        if not self.end_tokens:
            raise ConfigurationError("end_tokens must name the token that ends a reply; found none", "TW-no-end-token")


@dataclass(frozen=True)
class Reply:
    """One finished reply."""

    episode: int
    """The number of the episode, as given to `submit`."""
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """The log-probability of each token in nats, in the distribution it was sampled from, temperature included. A
    greedy reply has those of the distribution at temperature 1, since all would be 0 under a point mass."""
    complete: bool
    """Whether the reply ended with an end token (the last of `tokens`) rather than at the limit on its length."""


class Engine(Protocol):
    """Samples replies from one policy at a time."""

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""

    @property
    def context_length(self) -> int:
        """The most tokens that a context and its reply may have together."""

    @property
    def slots(self) -> int | None:
        """The number of episodes whose contexts the engine keeps between their replies, once a policy is loaded.

        Where more are played at once, contexts are computed again. None: the engine keeps what it can by itself.
        """

    @property
    def tokens_generated(self) -> int:
        """Reply tokens sampled since the engine was made."""

    def load(self, policy: Path, digest: str, model: PreTrainedModel | None = None, base: Path | None = None) -> None:
        """Load the weights in `policy`, a folder in Hugging Face's layout (config.json, model.safetensors).

        Where `policy` holds an adapter in place of the weights, `base` is the folder of those that it belongs to, and
        both are merged. `digest` identifies the weights: where they are loaded already, nothing happens. `model` is a
        model in this process that holds the same weights, a learner's: they are taken from memory then, and may be used
        in place, so they must not change while replies are in flight. Raises RuntimeError when replies are in flight.
        """

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout: seed the random numbers and forget all former contexts.

        Raises RuntimeError when no policy is loaded, or when replies are in flight.
        """

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply to a context of token ids. An episode may await only one at a time.

        The reply has at most `reply_tokens` tokens; None: at most `Sampling.max_reply_tokens`. Raises ValueError when
        the context leaves no room for a reply (the agent must end such an episode), and RuntimeError before `begin`.
        """

    def step(self) -> list[Reply]:
        """Run one engine step and return the replies that finished in it, sorted by episode.

        Raises RuntimeError when nothing is in flight.
        """

    def close(self) -> None:
        """Free the engine's memory. It cannot be used afterwards."""


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can give memory back between two rollouts."""

    def sleep(self) -> None:
        """Give memory back, as the engine was made to, until the next `Engine.load`.

        Nothing happens where the engine sleeps already, holds nothing, or was made to stay awake. Raises RuntimeError
        when replies are in flight.
        """


@runtime_checkable
class Shares(Protocol):
    """An engine that is several, each of which samples some of the episodes."""

    def share_out(self, groups: Sequence[int]) -> None:
        """Say, after `Engine.begin`, to which group each episode of the rollout belongs, by the number of the episode.

        The episodes of a group are sampled by one engine. Which one depends on the groups alone.
        """


def require_idle(engine: Engine, purpose: str) -> None:
    """Raise RuntimeError where replies are in flight."""
    if engine.in_flight:
        raise RuntimeError(
            f"nothing may be in flight to {purpose}; found {engine.in_flight} contexts: step until they are done"
        )


def reply_limit(
    context: Sequence[int], context_length: int, sampling: Sampling | None, reply_tokens: int | None
) -> int:
    """The maximum length in tokens of a reply to a context: the requested one, or less where the context leaves less.

    `reply_tokens` is as in `Engine.submit`. Raises RuntimeError where `sampling` is None, since no rollout has begun,
    and ValueError where there is no room for a reply.
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
