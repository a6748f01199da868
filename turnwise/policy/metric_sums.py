"""The sums that an update reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ValueTally:
    """Sums over targets of what the update of a critic reports."""

    targets: int = 0
    loss: float = 0.0
    clipped: int = 0

    def __add__(self, other: ValueTally) -> ValueTally:
        return ValueTally(self.targets + other.targets, self.loss + other.loss, self.clipped + other.clipped)


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
    objective: float = 0.0
    """What is descended, summed over optimizer steps: every term, aggregated."""
    further: Mapping[str, float] = field(default_factory=dict)
    """Sums of what only some settings have, by the name under which their mean is reported."""
    values: ValueTally = ValueTally()
    """Of a critic on the policy's trunk."""

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
            objective=self.objective + other.objective,
            further={
                name: self.further.get(name, 0.0) + other.further.get(name, 0.0)
                for name in {**self.further, **other.further}
            },
            values=self.values + other.values,
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
            **{name: total / self.tokens for name, total in self.further.items()},
        }
