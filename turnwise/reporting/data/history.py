"""Report data on the course of training besides curves: endings of episodes, alarms, and the cost of each variant."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endings:
    """How the training episodes of one variant ended, batch by batch: shares that sum to 1, means over its runs."""

    variant: str
    shares: dict[str, list[tuple[int, float]]]
    """For each ending its points (iteration, share); an ending that never occurred is left out."""


@dataclass(frozen=True)
class AlarmRaised:
    """An alarm that was raised in one iteration of one run."""

    variant: str
    seed: int
    iteration: int
    words: str
    """The observed value and its bound, as text."""
    response: str
    """The run's response: `log`, `stop` or `return`."""


@dataclass(frozen=True)
class VariantWork:
    """The cost of all runs of one variant together."""

    variant: str
    runs: int
    episodes: int
    """Training episodes."""
    turns: int
    """Turns of the training episodes."""
    sampled_tokens: int
    """Tokens of replies in training."""
    read_tokens: int
    """Tokens of observations in training."""
    trained_tokens: int
    """Tokens of replies that updates trained on; a token counts once, whatever the number of epochs."""
    evaluation_tokens: int
    """Tokens of replies on the validation and the test task set."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, as in the time account, over all stages that these runs used. A result shared by variants
    counts for each of them. Timings are not results: the field is empty in the artifact."""
