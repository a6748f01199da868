"""What the tests of the policy share: contexts, sequences, and one way to sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwise.data.trajectory import TokenSequence
from turnwise.policy.engines.contract import Engine, Reply, Sampling

VOCABULARY, CONTEXT, END, PAD = 300, 128, 1, 2


def write_policy(folder: Path, seed: int, *, tied: bool = True) -> None:
    """A small policy. Deviation 0.08 makes distributions far from uniform, so that a stale weight is seen."""
    from turnwise.policy.architecture import create_policy

    create_policy(
        folder,
        vocabulary_size=VOCABULARY,
        context_length=CONTEXT,
        end_token=END,
        pad_token=PAD,
        seed=seed,
        hidden=64,
        layers=2,
        heads=2,
        key_value_heads=1,
        feed_forward=128,
        initial_deviation=0.08,
        tied=tied,
    )


def sample(engine: Engine, contexts: Sequence[Sequence[int]], *, temperature: float, seed: int = 0) -> list[Reply]:
    """One reply to each context, in the order of the contexts."""
    engine.begin(seed, Sampling(temperature=temperature, max_reply_tokens=12, end_tokens=(END,)))
    for episode, context in enumerate(contexts):
        engine.submit(episode, context)
    replies: list[Reply] = []
    while engine.in_flight:
        replies += engine.step()
    return sorted(replies, key=lambda reply: reply.episode)


def contexts(count: int = 12) -> list[list[int]]:
    """Contexts of unequal length, without control tokens."""
    return [
        [3 + (7 * index + 11 * place) % (VOCABULARY - 3) for place in range(5 + 3 * index)] for index in range(count)
    ]


def as_sequences(contexts: Sequence[Sequence[int]], replies: Sequence[Reply]) -> list[TokenSequence]:
    return [
        TokenSequence(
            (*context, *reply.tokens),
            (-1,) * len(context) + (0,) * len(reply.tokens),
            (0.0,) * len(context) + reply.log_probabilities,
        )
        for context, reply in zip(contexts, replies, strict=True)
    ]


def two_turn_sequences() -> list[TokenSequence]:
    """Six sequences of two turns each and of unequal lengths, with plausible behaviour log-probabilities."""
    sequences = []
    for index in range(6):
        turn_of_token = (-1,) * (3 + index) + (0,) * 4 + (-1,) * 3 + (1,) * (2 + index % 3)
        tokens = tuple(3 + (5 * index + 13 * place) % (VOCABULARY - 3) for place in range(len(turn_of_token)))
        sequences.append(
            TokenSequence(tokens, turn_of_token, tuple(-5.5 if turn >= 0 else 0.0 for turn in turn_of_token))
        )
    return sequences
