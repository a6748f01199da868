"""What a report tells of the course of training beside curves: how episodes ended, what alarms said, what it took."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endings:
    """How the training episodes of one variant ended, batch by batch: shares that sum to 1, means over its runs."""

    variant: str
    shares: dict[str, list[tuple[int, float]]]
    """By ending, (iteration, share); an ending that never came is left out."""


@dataclass(frozen=True)
class AlarmRaised:
    """An alarm that went on in one iteration of one run."""

    variant: str
    seed: int
    iteration: int
    words: str
    """What was seen, and where its bound is."""
    response: str
    """What the run did."""


@dataclass(frozen=True)
class VariantWork:
    """What the runs of one variant took, all of them together."""

    variant: str
    runs: int
    episodes: int
    """Played in training."""
    turns: int
    sampled_tokens: int
    """Of replies, in training."""
    read_tokens: int
    """Of observations, in training."""
    trained_tokens: int
    """Of the replies that updates learned from; a token counts once, however many epochs went over it."""
    evaluation_tokens: int
    """Of replies, on the validation and the test panel."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage, as in the time account, of all that these runs read and made. A result that variants share counts for
    each of them; no part of the results, and empty in the artifact."""
