"""The batch of an update and its mini-batches. The settings are in `turnwise.policy.learner.settings`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from turnwise.data.trajectory import TokenSequence
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.learner.aggregation import token_weights
from turnwise.policy.learner.settings import UpdateSettings
from turnwise.seeding import generator

__all__ = ["UpdateBatch", "UpdateSettings", "mini_batches"]

PerToken = tuple[tuple[float, ...], ...]
"""One row per sequence, with one number per token; the numbers at observation tokens are never read."""
OPTIONAL = (
    "reference_log_probabilities",
    "proximal_log_probabilities",
    "importance_weights",
    "values",
    "returns",
)
"""The fields of a batch with numbers per token that only some settings read."""


@dataclass(frozen=True)
class UpdateBatch:
    """The training data of an update: sequences with one advantage per token.

    Advantages are 0.0 at observation tokens, which are never trained on. Raises ValueError when the fields do not
    match, and where there is no reply token.
    """

    sequences: tuple[TokenSequence, ...]
    advantages: PerToken
    groups: tuple[int, ...] | None = None
    """The prompt of each sequence; required by the aggregation `prompt-mean`."""
    samples: tuple[int, ...] | None = None
    """The sample that each sequence belongs to. The segments of a trajectory are one sample: they go into the same
    mini-batch, and count as one in an aggregation. None: each sequence is a sample."""
    reference_log_probabilities: PerToken | None = None
    """The reference policy's, in nats, at the sampling temperature; required by a penalty in the loss."""
    proximal_log_probabilities: PerToken | None = None
    """The learner's own before its first step, in nats, which the ratio is then taken to. The learner fills them in
    where the engine's mismatch is corrected for."""
    importance_weights: PerToken | None = None
    """Factors of the policy loss. The learner fills them in where the engine's mismatch is corrected for."""
    values: PerToken | None = None
    """Values that the returns were computed with, by a critic on the policy's trunk; required where it is trained."""
    returns: PerToken | None = None
    """The targets of that critic; NaN at reply tokens without a target."""

    def __post_init__(self) -> None:
        lengths = [len(sequence.tokens) for sequence in self.sequences]
        if [len(of_sequence) for of_sequence in self.advantages] != lengths:
            raise ValueError(
                "an update batch must have one advantage per token of every sequence: spread those of turns or of "
                "reply tokens with from_turns or from_reply_tokens"
            )
        for name in OPTIONAL:
            rows = getattr(self, name)
            if rows is not None and [len(row) for row in rows] != lengths:
                raise ValueError(f"{name} must have one number per token of every sequence of an update batch")
        for name in ("groups", "samples"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != len(lengths):
                raise ValueError(
                    f"{name} must have one number per sequence of an update batch; found {len(numbers)} for "
                    f"{len(lengths)}"
                )
        if not any(any(sequence.mask) for sequence in self.sequences):
            raise ValueError("an update batch must have a reply token to train on; found none")

    @classmethod
    def from_turns(
        cls,
        sequences: Sequence[TokenSequence],
        advantages: Sequence[Sequence[float]],
        *,
        groups: Sequence[int] | None = None,
        samples: Sequence[int] | None = None,
        reference_log_probabilities: Sequence[Sequence[float]] | None = None,
    ) -> UpdateBatch:
        """A batch from advantages per turn: `advantages[i][k]` goes to every reply token of turn k of sequence i.

        Where a sequence is a segment, turns are numbered through its whole trajectory.
        """
        spread = (
            tuple(of_turn[turn] if turn >= 0 else 0.0 for turn in sequence.turn_of_token)
            for sequence, of_turn in zip(sequences, advantages, strict=True)
        )
        return cls._of(sequences, spread, groups, samples, reference_log_probabilities)

    @classmethod
    def from_reply_tokens(
        cls,
        sequences: Sequence[TokenSequence],
        advantages: Sequence[Sequence[float]],
        *,
        groups: Sequence[int] | None = None,
        samples: Sequence[int] | None = None,
        reference_log_probabilities: Sequence[Sequence[float]] | None = None,
    ) -> UpdateBatch:
        """A batch from advantages per token: `advantages[i]` has one number per reply token of sequence i, in order."""
        spread = []
        for sequence, of_reply_token in zip(sequences, advantages, strict=True):
            if len(of_reply_token) != sum(sequence.mask):
                raise ValueError(
                    f"there must be one advantage per reply token; found {len(of_reply_token)} advantages for "
                    f"{sum(sequence.mask)} reply tokens"
                )
            following = iter(of_reply_token)
            spread.append(tuple(next(following) if mask else 0.0 for mask in sequence.mask))
        return cls._of(sequences, spread, groups, samples, reference_log_probabilities)

    @classmethod
    def _of(
        cls,
        sequences: Sequence[TokenSequence],
        advantages: Iterable[tuple[float, ...]],
        groups: Sequence[int] | None,
        samples: Sequence[int] | None,
        reference: Sequence[Sequence[float]] | None,
    ) -> UpdateBatch:
        return cls(
            sequences=tuple(sequences),
            advantages=tuple(advantages),
            groups=None if groups is None else tuple(groups),
            samples=None if samples is None else tuple(samples),
            reference_log_probabilities=None if reference is None else tuple(tuple(row) for row in reference),
        )

    def with_values(self, values: Sequence[Sequence[float]], returns: Sequence[Sequence[float | None]]) -> UpdateBatch:
        """The batch with the training data of a critic on the policy's trunk.

        `values` and `returns` have one number per reply token. Raises ValueError as `ValueBatch` does.
        """
        taught = ValueBatch(self.sequences, tuple(map(tuple, values)), tuple(map(tuple, returns)))
        of_values, of_returns = taught.per_token()
        return replace(self, values=tuple(map(tuple, of_values)), returns=tuple(map(tuple, of_returns)))

    def value_batch(self) -> ValueBatch:
        """The training data of a critic on the policy's trunk, with one number per reply token."""
        assert self.values is not None and self.returns is not None, "require_inputs_of has seen to it"
        values, returns = (
            tuple(
                tuple(value for value, mask in zip(row, sequence.mask, strict=True) if mask)
                for row, sequence in zip(rows, self.sequences, strict=True)
            )
            for rows in (self.values, self.returns)
        )
        targets = tuple(tuple(None if math.isnan(value) else value for value in row) for row in returns)
        return ValueBatch(self.sequences, values, targets)

    @property
    def reply_tokens(self) -> list[int]:
        """The number of reply tokens of each sequence."""
        return [sum(sequence.mask) for sequence in self.sequences]

    @property
    def sequences_of_samples(self) -> dict[int, list[int]]:
        """By sample, the indices of its sequences that have a reply token; samples without any are left out."""
        members: dict[int, list[int]] = {}
        for index, sequence in enumerate(self.sequences):
            if any(sequence.mask):
                members.setdefault(index if self.samples is None else self.samples[index], []).append(index)
        return members

    def token_weights(self, settings: UpdateSettings) -> list[float]:
        """The weight in the loss of a reply token of each sequence: see `turnwise.policy.learner.aggregation`."""
        lengths, members = self.reply_tokens, self.sequences_of_samples.values()
        of_samples = token_weights(
            settings.aggregation,
            [sum(lengths[index] for index in indices) for indices in members],
            groups=None if self.groups is None else [self.groups[indices[0]] for indices in members],
            constant=settings.aggregation_constant,
        )
        weights = [0.0] * len(self.sequences)
        for weight, indices in zip(of_samples, members, strict=True):
            for index in indices:
                weights[index] = weight
        return weights

    def require_inputs_of(self, settings: UpdateSettings) -> None:
        """Raise ValueError unless the batch has every field that an update with these settings reads."""
        if settings.aggregation == "prompt-mean" and self.groups is None:
            raise ValueError("the aggregation 'prompt-mean' must know the prompt of every sequence: give groups")
        if settings.penalty_in_loss is not None and self.reference_log_probabilities is None:
            raise ValueError(
                "a reference penalty in the loss must have the reference policy's log-probabilities: score the "
                "sequences with it, and give reference_log_probabilities"
            )
        if settings.critic is not None and (self.values is None or self.returns is None):
            raise ValueError(
                "a critic that learns along must have the values of the reply tokens and their returns: give them with "
                "with_values"
            )

    def select(self, indices: Sequence[int]) -> UpdateBatch:
        """The batch of these sequences, in this order."""
        chosen: dict[str, Any] = {}
        for field in fields(self):
            values = getattr(self, field.name)
            chosen[field.name] = None if values is None else tuple(values[index] for index in indices)
        return UpdateBatch(**chosen)

    def turn_by_turn(self) -> UpdateBatch:
        """The batch with each turn as a separate sequence and sample: the turn's reply after the context before it.

        Earlier replies count as observations there. This is the comparison in RAGEN (arXiv 2504.20073): the same tokens
        with the same advantages, at the cost of recomputing every context. With the aggregation `token-mean` the
        gradient is that of whole trajectories.
        """
        chosen, parts, ends = [], [], []
        for index, sequence in enumerate(self.sequences):
            for turn in sorted(set(sequence.turn_of_token) - {-1}):
                end = max(place for place, of in enumerate(sequence.turn_of_token) if of == turn) + 1
                chosen.append(index)
                parts.append(_only(sequence, turn, end))
                ends.append(end)
        cut = self.select(chosen)
        per_token: dict[str, Any] = {}
        for name in ("advantages", *OPTIONAL):
            rows = getattr(cut, name)
            if rows is not None:
                per_token[name] = tuple(row[:end] for row, end in zip(rows, ends, strict=True))
        return replace(cut, sequences=tuple(parts), samples=None, **per_token)

    def by_signal(self) -> Iterator[tuple[bool, list[int]]]:
        """Split the sequences by signal: (True, indices of those with an advantage other than 0 at a reply token), then
        (False, indices of the others). A part without sequences is left out.
        """
        signals = [
            any(advantage and mask for advantage, mask in zip(row, sequence.mask, strict=True))
            for row, sequence in zip(self.advantages, self.sequences, strict=True)
        ]
        for has_signal in (True, False):
            chosen = [index for index, signal in enumerate(signals) if signal is has_signal]
            if chosen:
                yield has_signal, chosen


def _only(sequence: TokenSequence, turn: int, end: int) -> TokenSequence:
    """The first `end` tokens, with the reply of `turn` as the only reply; all other tokens are observations."""
    places = [of == turn for of in sequence.turn_of_token[:end]]
    return TokenSequence(
        sequence.tokens[:end],
        tuple(turn if here else -1 for here in places),
        tuple(value if here else 0.0 for value, here in zip(sequence.log_probabilities, places, strict=False)),
    )


def mini_batches(batch: UpdateBatch, settings: UpdateSettings) -> Iterator[UpdateBatch]:
    """The mini-batches of all epochs, one per optimizer step; the sequences of a sample stay together."""
    members = batch.sequences_of_samples
    samples = list(members)
    for epoch in range(settings.epochs):
        order = np.array(samples)
        if settings.mini_batches > 1:
            order = generator(settings.seed, "mini-batches", epoch).permutation(samples)
        for part in np.array_split(order, min(settings.mini_batches, len(samples))):
            yield batch.select([index for sample in part.tolist() for index in members[sample]])
