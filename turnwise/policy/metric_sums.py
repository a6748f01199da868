"""Sums for the metrics of an update, added up over micro-batches and mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ValueTally:
    """Sums over targets, for the metrics of a critic's update."""

    targets: int = 0
    """The number of targets."""
    loss: float = 0.0
    clipped: int = 0

    def __add__(self, other: ValueTally) -> ValueTally:
        return ValueTally(self.targets + other.targets, self.loss + other.loss, self.clipped + other.clipped)


@dataclass(frozen=True)
class UpdateTally:
    """Sums over reply tokens, for the metrics of an update. Log-probabilities and entropies are in nats."""

    tokens: int = 0
    """The number of reply tokens."""
    unpadded: int = 0
    """Tokens of the sequences, observations included, without padding."""
    padded: int = 0
    """Positions that were computed, padding included."""
    loss: float = 0.0
    ratio: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    divergence: float = 0.0
    entropy: float = 0.0
    mismatch: float = 0.0
    mismatch_maximum: float = 0.0
    objective: float = 0.0
    """The objective with all its terms and token weights, summed over optimizer steps."""
    further: Mapping[str, float] = field(default_factory=dict)
    """Sums that only some settings have, by the name under which their mean is reported."""
    values: ValueTally = ValueTally()
    """The sums of a critic on the policy's trunk."""

    def __add__(self, other: UpdateTally) -> UpdateTally:
        summed = [name for name in vars(self) if name not in ("mismatch_maximum", "further")]
        return UpdateTally(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            mismatch_maximum=max(self.mismatch_maximum, other.mismatch_maximum),
            further={
                name: self.further.get(name, 0.0) + other.further.get(name, 0.0)
                for name in {**self.further, **other.further}
            },
        )

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> UpdateTally:
        """The sums that `asdict` has made plain values of."""
        return cls(**{**values, "values": ValueTally(**values["values"])})

    def means(self) -> dict[str, float]:
        """The metrics that are means over reply tokens, by name."""
        return {
            "loss": self.loss / self.tokens,
            "ratio": self.ratio / self.tokens,
            "clip_fraction_low": self.clipped_low / self.tokens,
            "clip_fraction_high": self.clipped_high / self.tokens,
            "entropy": self.entropy / self.tokens,
            "approximate_kl": self.divergence / self.tokens,
            **{name: total / self.tokens for name, total in self.further.items()},
        }
