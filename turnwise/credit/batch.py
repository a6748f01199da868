"""The input of an advantage estimator. It has no observation tokens, so they cannot be mistaken for steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

from turnwise.errors import CreditError

PER_TURN = ("reply_lengths", "anchors", "trained")
PER_TOKEN = ("values", "token_rewards")
PER_TRAJECTORY = ("outcome", "truncated", "bootstrap")
NUMBERS = ("turn_rewards", "outcome", "values", "token_rewards", "bootstrap")
FLAGS = ("truncated", "trained")


@dataclass(frozen=True)
class CreditBatch:
    """Rewards and critic values of a batch of trajectories; every field has one entry per trajectory.

    Only the first three fields are required; an estimator names the others that it needs. Raises CreditError when a
    field does not match the trajectories, their turns or their reply tokens, or holds a number that is not finite.
    Arrays are accepted; numbers are converted to Python's, so that sums have double precision.
    """

    group: Sequence[int]
    """The group of each trajectory; trajectories of the same group have the same task."""
    turn_rewards: Sequence[Sequence[float]]
    """The weighted sum of turn-level rewards, one number per turn; a turn with reward 0 has an entry, too."""
    outcome: Sequence[float]
    """The weighted sum of outcome-level rewards."""
    reply_lengths: Sequence[Sequence[int]] | None = None
    """The number of reply tokens of each turn, at least 1."""
    values: Sequence[Sequence[float]] | None = None
    """A critic's values, one per reply token of the whole trajectory: of the state before that token was sampled."""
    anchors: Sequence[Sequence[str | None]] | None = None
    """The world's state before each turn, None where the world does not report it. Equal texts are equal states."""
    token_rewards: Sequence[Sequence[float]] | None = None
    """Rewards per reply token of the whole trajectory, such as a KL penalty."""
    truncated: Sequence[bool] | None = None
    """Whether a limit cut the trajectory off before it ended by itself. Estimators with a critic use `bootstrap` as the
    value after the cut; all others treat the cut as an end."""
    bootstrap: Sequence[float] | None = None
    """The critic's value at the cut. Not read for a trajectory that ended by itself."""
    trained: Sequence[Sequence[bool]] | None = None
    """Which turns are trained; None: all. A turn that is not trained has advantage 0 and is left out of whitening. It
    is part of the episode nevertheless: its rewards count in every return, its tokens are time steps, and a group's
    mean and deviation include it."""

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        counts = {name: len(getattr(self, name)) for name in given}
        if len(set(counts.values())) != 1:
            raise CreditError(f"a batch has one entry per trajectory in every field; found {counts}")
        if self.reply_lengths is None and any(name in given for name in PER_TOKEN):
            raise CreditError(f"{' and '.join(PER_TOKEN)} are per reply token; found them without reply_lengths")
        for index in range(len(self)):
            self._require_entries(index)
            self._require_sense(index)
        self._make_plain()

    def __len__(self) -> int:
        return len(self.group)

    @property
    def members(self) -> dict[int, list[int]]:
        """The indices of each group's trajectories, in order."""
        members: dict[int, list[int]] = {}
        for index, group in enumerate(self.group):
            members.setdefault(group, []).append(index)
        return members

    @property
    def turns(self) -> list[int]:
        """The number of turns of each trajectory."""
        return [len(rewards) for rewards in self.turn_rewards]

    @property
    def trained_turns(self) -> list[list[bool]]:
        """Which turns of each trajectory are trained."""
        if self.trained is None:
            return [[True] * turns for turns in self.turns]
        return [[bool(flag) for flag in flags] for flags in self.trained]

    @property
    def trained_tokens(self) -> list[list[bool]]:
        """Which reply tokens of each trajectory are trained. Raises CreditError without `reply_lengths`."""
        return [
            [flag for flag, span in zip(flags, self.spans(index), strict=True) for _ in span]
            for index, flags in enumerate(self.trained_turns)
        ]

    def spans(self, index: int) -> list[range]:
        """The index range of each turn's tokens among the trajectory's reply tokens.

        Raises CreditError without `reply_lengths`.
        """
        if self.reply_lengths is None:
            raise CreditError("reply_lengths must be given to place anything on tokens; found none in the batch")
        ends = list(accumulate(self.reply_lengths[index]))
        return [range(end - length, end) for end, length in zip(ends, self.reply_lengths[index], strict=True)]

    def _require_entries(self, index: int) -> None:
        """Raise CreditError unless each field of one trajectory has one entry per turn, or per reply token."""
        turns = len(self.turn_rewards[index])
        if not turns:
            raise CreditError(f"a trajectory has at least one turn; trajectory {index} has none: leave it out")
        for name in PER_TURN:
            field = getattr(self, name)
            if field is not None and len(field[index]) != turns:
                raise CreditError(
                    f"{name} must have one entry per turn; trajectory {index} has {turns} turns, found "
                    f"{len(field[index])}"
                )
        if self.reply_lengths is None:
            return
        for length in self.reply_lengths[index]:
            if not _is_number(length) or length < 1 or length != int(length):
                raise CreditError(f"reply_lengths must be counts of at least 1; trajectory {index} has {length!r}")
        tokens = sum(self.reply_lengths[index])
        for name in PER_TOKEN:
            field = getattr(self, name)
            if field is not None and len(field[index]) != tokens:
                raise CreditError(
                    f"{name} must have one entry per reply token; trajectory {index} has {tokens} reply tokens, found "
                    f"{len(field[index])}"
                )

    def _require_sense(self, index: int) -> None:
        """Raise CreditError unless numbers are finite, flags are true or false, and anchors are texts or None."""
        for name in NUMBERS:
            for entry in self._entries(name, index):
                if not _is_number(entry):
                    raise CreditError(f"{name} must hold finite numbers; trajectory {index} has {entry!r}")
        for name in FLAGS:
            for entry in self._entries(name, index):
                if entry not in (True, False):
                    raise CreditError(f"{name} must be true or false; trajectory {index} has {entry!r}")
        for anchor in self._entries("anchors", index):
            if not isinstance(anchor, str | None):
                raise CreditError(f"anchors must be texts or None; trajectory {index} has {anchor!r}")

    def _entries(self, name: str, index: int) -> Sequence[Any]:
        """The entries of one trajectory in one field; empty where the field is not given."""
        field = getattr(self, name)
        if field is None:
            return ()
        return [field[index]] if name in PER_TRAJECTORY else field[index]

    def _make_plain(self) -> None:
        """Replace the given numbers, which may be arrays, by lists of Python's numbers."""
        for name in (*NUMBERS, "reply_lengths"):
            entries = [
                [int(entry) if name == "reply_lengths" else float(entry) for entry in self._entries(name, index)]
                for index in range(len(self))
            ]
            if getattr(self, name) is not None:  # the dataclass is frozen: plain assignment raises
                object.__setattr__(self, name, [row[0] for row in entries] if name in PER_TRAJECTORY else entries)


def _is_number(entry: Any) -> bool:
    """Whether an entry is a finite number, of Python's or of numpy's types."""
    return hasattr(entry, "__float__") and math.isfinite(entry)
