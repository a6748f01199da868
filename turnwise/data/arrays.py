"""Trajectories as arrays: one flat array per quantity, and offsets that say where each row begins.

Rows are of unequal length: the turns of a trajectory, the tokens of a reply, the tokens of a sequence. From the files
of a rollout to the loss rewards, advantages and numbers per token are in such arrays, and no loop of Python's goes over
tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.object_]


def offsets_of(lengths: Sequence[int] | Integers) -> Integers:
    """Where rows of these lengths begin in one array, and at last where the last one ends, [rows + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of unequal length: row i is `values[offsets[i] : offsets[i + 1]]`. Raises ValueError if they do not match.

    Equal where rows and values are, NaN included.
    """

    values: NDArray[Any]
    """The entries of all rows, [entries]."""
    offsets: Integers
    """Where each row begins, and at last where the last one ends, [rows + 1]."""

    def __post_init__(self) -> None:
        if len(self.values) != self.offsets[-1]:
            raise ValueError(f"rows must have {self.offsets[-1]} entries together; found {len(self.values)}")

    @classmethod
    def of(cls, rows: Ragged | Iterable[Sequence[Any] | NDArray[Any]], dtype: DTypeLike = np.float64) -> Ragged:
        """These rows as one array of this type."""
        if isinstance(rows, Ragged):
            return rows if rows.values.dtype == dtype else cls(rows.values.astype(dtype), rows.offsets)
        row_list = list(rows)
        if row_list and isinstance(row_list[0], np.ndarray):
            values = np.concatenate(row_list).astype(dtype)
        else:
            values = np.array(list(chain.from_iterable(row_list)), dtype=dtype)
        return cls.with_lengths(values, [len(row) for row in row_list])

    @classmethod
    def with_lengths(cls, values: NDArray[Any], lengths: Sequence[int] | Integers) -> Ragged:
        """The entries as rows of these lengths."""
        return cls(values, offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        row = range(len(self))[row]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        numbers = self.values.dtype.kind == "f"
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.values, other.values, numbers)

    @property
    def lengths(self) -> Integers:
        """The number of entries of each row, [rows]."""
        return np.diff(self.offsets)

    def places(self, rows: Sequence[int] | Integers) -> Integers:
        """Where the entries of these rows are in `values`, row after row."""
        selected = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[selected]
        ends = np.cumsum(lengths)
        return np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[selected] - (ends - lengths), lengths)

    def select(self, rows: Sequence[int] | Integers) -> Ragged:
        """These rows, in this order."""
        selected = np.asarray(rows, dtype=np.int64)
        return Ragged.with_lengths(self.values[self.places(selected)], self.lengths[selected])

    def backward(self) -> Iterator[tuple[Integers, Integers]]:
        """The last entry of every row, then the one before it, and so on: the rows that have one, and its place."""
        lengths = self.lengths
        for back in range(1, int(lengths.max(initial=0)) + 1):
            rows = np.flatnonzero(lengths >= back)
            yield rows, self.offsets[rows + 1] - back

    def tolist(self) -> list[list[Any]]:
        """The rows as lists of Python's numbers."""
        entries: list[Any] = self.values.tolist()
        ends = self.offsets.tolist()
        return [entries[begin:end] for begin, end in pairwise(ends)]


Rows = Ragged | Sequence[Sequence[float]]
"""What a function takes as rows of numbers: `Ragged.of` makes them one array."""


@dataclass(frozen=True)
class TokenSequence:
    """One token sequence, to be read; the three tuples have the same length, one entry per token."""

    tokens: tuple[int, ...]
    turn_of_token: tuple[int, ...]
    """The turn whose reply the token belongs to; -1 at observation tokens."""
    log_probabilities: tuple[float, ...]
    """Behaviour log-probabilities in nats; 0.0 at observation tokens."""

    @property
    def mask(self) -> tuple[int, ...]:
        """1 on reply tokens, 0 on observation tokens."""
        return tuple(int(turn >= 0) for turn in self.turn_of_token)


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Token sequences as arrays, [tokens] each: sequence i is `offsets[i] : offsets[i + 1]` of each of them.

    Indexing and iterating give single sequences as `TokenSequence`. Raises ValueError if the lengths do not match.
    """

    tokens: Integers
    turn_of_token: Integers
    """The turn whose reply the token belongs to, numbered in its trajectory; -1 at observation tokens."""
    log_probabilities: Numbers
    """Behaviour log-probabilities in nats; 0.0 at observation tokens."""
    offsets: Integers
    """[sequences + 1]."""

    def __post_init__(self) -> None:
        counts = {len(self.tokens), len(self.turn_of_token), len(self.log_probabilities), int(self.offsets[-1])}
        if len(counts) != 1:
            raise ValueError(f"sequences must have the same number of entries in every array; found {sorted(counts)}")

    @classmethod
    def of(cls, sequences: Sequences) -> SequenceBatch:
        """These sequences as arrays."""
        if isinstance(sequences, SequenceBatch):
            return sequences
        tokens = Ragged.of((each.tokens for each in sequences), np.int64)
        turns = Ragged.of((each.turn_of_token for each in sequences), np.int64)
        log_probabilities = Ragged.of(each.log_probabilities for each in sequences)
        return cls(tokens.values, turns.values, log_probabilities.values, tokens.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> TokenSequence:
        tokens, turns = (self.rows(each)[index].tolist() for each in (self.tokens, self.turn_of_token))
        return TokenSequence(tuple(tokens), tuple(turns), tuple(self.rows(self.log_probabilities)[index].tolist()))

    def __iter__(self) -> Iterator[TokenSequence]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceBatch):
            return NotImplemented
        fields = ("tokens", "turn_of_token", "log_probabilities", "offsets")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in fields)

    @cached_property
    def mask(self) -> Flags:
        """Which tokens are reply tokens, [tokens]."""
        return self.turn_of_token >= 0

    @cached_property
    def reply_counts(self) -> Integers:
        """The number of reply tokens of each sequence, [sequences]."""
        return np.diff(np.concatenate([[0], np.cumsum(self.mask)])[self.offsets])

    @property
    def lengths(self) -> Integers:
        """The number of tokens of each sequence, [sequences]."""
        return np.diff(self.offsets)

    def rows(self, values: NDArray[Any]) -> Ragged:
        """Numbers per token, [tokens], as one row per sequence."""
        return Ragged(values, self.offsets)

    def reply_rows(self, values: NDArray[Any]) -> Ragged:
        """Numbers per reply token, [reply tokens], as one row per sequence."""
        return Ragged.with_lengths(values, self.reply_counts)

    def at_replies(self, values: NDArray[Any]) -> Ragged:
        """Numbers per reply token, [reply tokens], as one row per sequence with one number per token: 0 elsewhere."""
        spread = np.zeros(len(self.tokens), dtype=values.dtype)
        spread[self.mask] = values
        return self.rows(spread)

    def select(self, indices: Sequence[int] | Integers) -> SequenceBatch:
        """These sequences, in this order."""
        selected = np.asarray(indices, dtype=np.int64)
        places = self.rows(self.tokens).places(selected)
        return SequenceBatch(
            self.tokens[places],
            self.turn_of_token[places],
            self.log_probabilities[places],
            offsets_of(self.lengths[selected]),
        )


def joined(batches: Iterable[SequenceBatch]) -> SequenceBatch:
    """The sequences of all batches, in order."""
    parts = list(batches)
    return SequenceBatch(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.turn_of_token for part in parts]),
        np.concatenate([part.log_probabilities for part in parts]),
        offsets_of(np.concatenate([part.lengths for part in parts])),
    )


Sequences = SequenceBatch | Sequence[TokenSequence]
"""What the learner and the critic take: a batch, or single sequences that `SequenceBatch.of` joins."""


@dataclass(frozen=True, eq=False)
class TrajectoryArrays:
    """The rewards and tokens of trajectories as arrays: turn after turn, trajectory after trajectory.

    It is all that credit and an update read of a rollout; what an episode looks like to a reader is in `Trajectory`.
    """

    group: Integers
    """The group of each trajectory, [trajectories]."""
    replica: Integers
    """Its number within the group, [trajectories]."""
    truncated: Flags
    """Whether a limit cut the trajectory off before it ended by itself, [trajectories]."""
    offsets: Integers
    """The turns of trajectory i are `offsets[i] : offsets[i + 1]`, [trajectories + 1]."""
    rewards: Mapping[str, Numbers]
    """By name, the raw reward of each turn, [turns]; 0 where the turn earned none of that name."""
    last_attempt: Flags
    """Whether the turn belongs to the last attempt at the task, the one that counts, [turns]."""
    acts: Flags
    """Whether the reply acts in the world, [turns]: a plan, a lesson or a summary does not."""
    states: Texts
    """The anchor state in which the reply was made, [turns]; None where the world names none."""
    trained: Flags
    """Whether the update trains on the turn's reply, [turns]."""
    opens_segment: Flags
    """Whether the context was rewritten before the turn's reply, [turns]. A first turn always opens a segment."""
    observation_tokens: Ragged
    """What was appended to the context before each reply: one row per turn."""
    reply_tokens: Ragged
    log_probabilities: Ragged
    """Behaviour log-probabilities in nats: one row per turn, with one number per reply token."""

    def __len__(self) -> int:
        return len(self.group)

    def turn_rows(self, values: NDArray[Any]) -> Ragged:
        """Entries per turn, [turns], as one row per trajectory."""
        return Ragged(values, self.offsets)

    def sums(self, numbers: Numbers | Flags) -> Numbers:
        """The sum of numbers per turn, [turns], over the turns of each trajectory, added up in their order."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return np.bincount(owner, numbers, len(self)).astype(np.float64)

    @property
    def trained_replies(self) -> Flags:
        """Which reply tokens belong to a turn that is trained on, [reply tokens]."""
        return np.repeat(self.trained, self.reply_tokens.lengths)

    def reply_rows(self, values: NDArray[Any]) -> Ragged:
        """Numbers per reply token of all turns, [reply tokens], as one row per trajectory."""
        return Ragged(values, self.reply_tokens.offsets[self.offsets])

    def token_rows(self, values: NDArray[Any]) -> Ragged:
        """Numbers per token of all turns, observation before reply, [tokens], as one row per trajectory."""
        return Ragged(values, (self.observation_tokens.offsets + self.reply_tokens.offsets)[self.offsets])

    def select(self, indices: Sequence[int] | Integers) -> TrajectoryArrays:
        """These trajectories, in this order."""
        selected = np.asarray(indices, dtype=np.int64)
        numbers = Ragged(np.arange(len(self.trained)), self.offsets).select(selected)
        turns = numbers.values
        return TrajectoryArrays(
            self.group[selected],
            self.replica[selected],
            self.truncated[selected],
            numbers.offsets,
            {name: turn_rewards[turns] for name, turn_rewards in self.rewards.items()},
            self.last_attempt[turns],
            self.acts[turns],
            self.states[turns],
            self.trained[turns],
            self.opens_segment[turns],
            self.observation_tokens.select(turns),
            self.reply_tokens.select(turns),
            self.log_probabilities.select(turns),
        )

    def segments(self, *, every_reply: bool = False) -> tuple[SequenceBatch, Integers]:
        """The token sequences, and the trajectory that each of them belongs to, [sequences].

        A trajectory is one sequence, or as many as it has segments. Its tokens are in the order of its turns, so that
        numbers per token, of trajectory after trajectory, are aligned with those of the sequences.

        Replies that are not trained on count as observation tokens, which are only attended to; `every_reply=True`
        treats them as replies.
        """
        observed, replied = self.observation_tokens.lengths, self.reply_tokens.lengths
        begins = offsets_of(observed + replied)
        observation_places = _moved(self.observation_tokens, begins[:-1])
        reply_places = _moved(self.reply_tokens, begins[:-1] + observed)
        counts = np.diff(self.offsets)
        number = np.arange(len(observed)) - np.repeat(self.offsets[:-1], counts)
        is_reply = self.trained | every_reply
        tokens = np.empty(begins[-1], dtype=np.int64)
        tokens[observation_places], tokens[reply_places] = self.observation_tokens.values, self.reply_tokens.values
        turn_of_token = np.full(len(tokens), -1)
        turn_of_token[reply_places] = np.repeat(np.where(is_reply, number, -1), replied)
        log_probabilities = np.zeros(len(tokens))
        log_probabilities[reply_places] = np.where(np.repeat(is_reply, replied), self.log_probabilities.values, 0.0)
        opening = np.flatnonzero(self.opens_segment | (number == 0))
        offsets = np.append(begins[opening], begins[-1])
        owners = np.repeat(np.arange(len(self)), counts)[opening]
        return SequenceBatch(tokens, turn_of_token, log_probabilities, offsets), owners


@dataclass(frozen=True)
class Advantages:
    """Advantages as arrays, with one row per trajectory that is trained on."""

    trajectories: Integers
    """The index of each of these trajectories in the rollout, [trajectories]."""
    turns: Ragged
    """One advantage per turn; where tokens have advantages, the mean over the turn's reply tokens."""
    tokens: Ragged | None = None
    """One advantage per reply token, for a token-level estimator or if thoughts have credit of their own; else None."""
    value_targets: Ragged | None = None
    """The critic's regression target per reply token; None for an estimator without a critic."""

    @property
    def has_signal(self) -> bool:
        """Whether any token that is trained has an advantage other than 0. Those of a turn's tokens may cancel."""
        return bool((self.turns if self.tokens is None else self.tokens).values.any())

    def by_trajectory(self) -> dict[int, TrajectoryAdvantages]:
        """The advantages of each trajectory as lists, by its index in the rollout."""
        turns = self.turns.tolist()
        tokens, targets = (
            [None] * len(turns) if rows is None else rows.tolist() for rows in (self.tokens, self.value_targets)
        )
        rows = zip(turns, tokens, targets, strict=True)
        return {index: TrajectoryAdvantages(*row) for index, row in zip(self.trajectories.tolist(), rows, strict=True)}


@dataclass(frozen=True)
class TrajectoryAdvantages:
    """The advantages of one trajectory, to be shown; see `Advantages`."""

    turns: list[float]
    tokens: list[float] | None
    value_targets: list[float] | None

    def by_turn(self, reply_lengths: Sequence[int]) -> list[list[float]] | None:
        """The advantages of reply tokens grouped by turn, whose replies have these lengths; None if `tokens` is."""
        return None if self.tokens is None else Ragged.with_lengths(np.array(self.tokens), reply_lengths).tolist()


def _moved(rows: Ragged, begins: Integers) -> Integers:
    """The places of all entries where row i begins at `begins[i]`."""
    return np.arange(len(rows.values)) + np.repeat(begins - rows.offsets[:-1], rows.lengths)
