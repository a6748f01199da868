"""What an update is made of: the batch, its settings, its mini-batches, and the sums that it reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import ConfigurationError
from turnwise.seeding import generator
from turnwise.trajectory import TokenSequence


@dataclass(frozen=True)
class UpdateBatch:
    """Sequences with one advantage per token (0.0 at observation tokens, which are never trained on)."""

    sequences: tuple[TokenSequence, ...]
    advantages: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        lengths = [len(sequence.tokens) for sequence in self.sequences]
        if [len(of_sequence) for of_sequence in self.advantages] != lengths:
            raise ValueError(
                "an update batch must have one advantage per token of every sequence: spread those of turns or of "
                "reply tokens with from_turns or from_reply_tokens"
            )
        if not any(any(sequence.mask) for sequence in self.sequences):
            raise ValueError("an update batch must have a reply token to train on; found none")

    @classmethod
    def from_turns(cls, sequences: Sequence[TokenSequence], advantages: Sequence[Sequence[float]]) -> UpdateBatch:
        """`advantages[i][k]` goes to every token of the reply of turn k of sequence i."""
        spread = (
            tuple(of_turn[turn] if turn >= 0 else 0.0 for turn in sequence.turn_of_token)
            for sequence, of_turn in zip(sequences, advantages, strict=True)
        )
        return cls(tuple(sequences), tuple(spread))

    @classmethod
    def from_reply_tokens(
        cls, sequences: Sequence[TokenSequence], advantages: Sequence[Sequence[float]]
    ) -> UpdateBatch:
        """`advantages[i]` has one number per reply token of sequence i, in order."""
        spread = []
        for sequence, of_reply_token in zip(sequences, advantages, strict=True):
            if len(of_reply_token) != sum(sequence.mask):
                raise ValueError(
                    f"there must be one advantage per reply token; found {len(of_reply_token)} advantages for "
                    f"{sum(sequence.mask)} reply tokens"
                )
            following = iter(of_reply_token)
            spread.append(tuple(next(following) if mask else 0.0 for mask in sequence.mask))
        return cls(tuple(sequences), tuple(spread))

    def by_signal(self) -> Iterator[tuple[bool, UpdateBatch]]:
        """The sequences with an advantage other than 0 (True), then those without (False); each where there are any."""
        for has_signal in (True, False):
            chosen = [index for index, row in enumerate(self.advantages) if any(row) is has_signal]
            if chosen:
                sequences = tuple(self.sequences[index] for index in chosen)
                yield has_signal, UpdateBatch(sequences, tuple(self.advantages[index] for index in chosen))


@dataclass(frozen=True)
class UpdateSettings:
    """How a batch becomes optimizer steps."""

    learning_rate: float
    temperature: float
    """That of the sampling: the policy that is trained is the one that was sampled from."""
    micro_batch_tokens: int
    """Padded tokens per forward pass. Changes memory and speed; the result only in its rounding."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    epochs: int = 1
    mini_batches: int = 1
    """Optimizer steps per epoch. Above 1 the sequences are shuffled and dealt out as evenly as possible."""
    maximum_gradient_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    maximum_mismatch: float = 0.1
    """Mean |learner - engine| per reply token, in nats, above which nothing is trained and MismatchError is raised."""
    seed: int = 0
    """Of the shuffle into mini-batches."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigurationError(
                f"the temperature of an update must be above 0; found {self.temperature}: greedy replies have no "
                "policy gradient"
            )


def mini_batches(batch: UpdateBatch, settings: UpdateSettings) -> Iterator[UpdateBatch]:
    """The parts of the batch that an optimizer step each is taken on, over all epochs."""
    trained = [index for index, sequence in enumerate(batch.sequences) if any(sequence.mask)]
    for epoch in range(settings.epochs):
        order = np.array(trained)
        if settings.mini_batches > 1:
            order = generator(settings.seed, "mini-batches", epoch).permutation(trained)
        for part in np.array_split(order, min(settings.mini_batches, len(trained))):
            yield UpdateBatch(
                tuple(batch.sequences[index] for index in part), tuple(batch.advantages[index] for index in part)
            )


@dataclass(frozen=True)
class UpdateTally:
    """Sums over reply tokens of what an update reports."""

    tokens: int = 0
    unpadded: int = 0
    padded: int = 0
    loss: float = 0.0
    ratio: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    divergence: float = 0.0
    entropy: float = 0.0
    mismatch: float = 0.0
    mismatch_maximum: float = 0.0

    def __add__(self, other: UpdateTally) -> UpdateTally:
        return UpdateTally(
            tokens=self.tokens + other.tokens,
            unpadded=self.unpadded + other.unpadded,
            padded=self.padded + other.padded,
            loss=self.loss + other.loss,
            ratio=self.ratio + other.ratio,
            clipped_low=self.clipped_low + other.clipped_low,
            clipped_high=self.clipped_high + other.clipped_high,
            divergence=self.divergence + other.divergence,
            entropy=self.entropy + other.entropy,
            mismatch=self.mismatch + other.mismatch,
            mismatch_maximum=max(self.mismatch_maximum, other.mismatch_maximum),
        )

    def means(self) -> dict[str, float]:
        """Per reply token."""
        return {
            "loss": self.loss / self.tokens,
            "ratio": self.ratio / self.tokens,
            "clip_fraction_low": self.clipped_low / self.tokens,
            "clip_fraction_high": self.clipped_high / self.tokens,
            "entropy": self.entropy / self.tokens,
            "approximate_kl": self.divergence / self.tokens,
        }
