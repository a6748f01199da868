"""What runs cost, and what a report says of those that were ended early, which count, and left out, which do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnwise.data.outcomes import EarlyEnd, LeftOut, NamedRun


@dataclass(frozen=True)
class VariantWork:
    """The cost of all runs of one variant together, or of one run that was ended."""

    variant: str
    """The variant's name, or the run's."""
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


@dataclass(frozen=True)
class EndedRun(NamedRun):
    """A run that a guard or an alarm ended: see `turnwise.data.outcomes.EarlyEnd`."""

    variant: str
    seed: int
    iteration: int
    """The last iteration that it made; the policy after it was tested."""
    planned: int
    """The iterations that it would have made."""
    by: str
    """What ended it, to follow `ended by`."""
    message: str
    """What was seen, what it usually means, what may help, and the last good policy."""
    work: VariantWork | None = None
    """What it cost; None where that was not counted."""

    @property
    def when(self) -> str:
        """When it was ended, e.g. `iteration 31 of 100`."""
        return f"iteration {self.iteration} of {self.planned}"


def ended_run(variant: str, seed: int, end: EarlyEnd, work: VariantWork | None = None) -> EndedRun:
    """A run as a report shows how it was ended."""
    return EndedRun(variant, seed, end.iteration, end.planned, end.reason, end.message, work)


@dataclass(frozen=True)
class Outcomes:
    """The runs of some variants that did not make all their iterations."""

    runs: dict[str, int]
    """By variant, how many runs it was given: those that went on, were ended, or are left out."""
    ended: list[EndedRun] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def ended_of(self, variant: str) -> list[EndedRun]:
        """The runs of a variant that were ended early."""
        return [run for run in self.ended if run.variant == variant]

    def left_out_of(self, variant: str) -> list[LeftOut]:
        """The runs of a variant that a fault has left out."""
        return [run for run in self.left_out if run.variant == variant]

    def mark(self, variant: str) -> str:
        """What stands beside a variant's name wherever its results are: `2 of 5 ended`; empty where all went on."""
        marks = [(len(self.ended_of(variant)), "ended"), (len(self.left_out_of(variant)), "left out")]
        return ", ".join(f"{count} of {self.runs[variant]} {what}" for count, what in marks if count)

    def sentences(self) -> list[str]:
        """For each variant with such runs: how many were ended and by what, and how many are left out and why.

        E.g. `2 of 5 runs of grpo were ended by zero_variance_groups.`
        """
        return [sentence for variant in self.runs for sentence in self._sentences_of(variant)]

    def _sentences_of(self, variant: str) -> Iterator[str]:
        reasons = Counter(run.by for run in self.ended_of(variant))
        if len(reasons) == 1:
            yield f"{self._share(variant, reasons.total())} ended by {next(iter(reasons))}."
        elif reasons:
            each = " and ".join(f"{count} by {reason}" for reason, count in reasons.items())
            yield f"{self._share(variant, reasons.total())} ended, {each}."
        faults = Counter(run.by for run in self.left_out_of(variant))
        if faults:
            yield f"{self._share(variant, faults.total())} left out, by a fault ({', '.join(faults)})."

    def _share(self, variant: str, count: int) -> str:
        total = self.runs[variant]
        return f"{count} of {total} {'run' if total == 1 else 'runs'} of {variant} {'was' if count == 1 else 'were'}"


def collected(variants: Iterable[str], ended: Iterable[EndedRun], left_out: Iterable[LeftOut]) -> Outcomes | None:
    """The outcomes of runs; None where every run made all its iterations.

    Args:
        variants: the variant of each run that counts.
        ended: those of these runs that were ended early.
        left_out: further runs, which a fault has left out.
    """
    early, missing = list(ended), list(left_out)
    runs = Counter([*variants, *(each.variant for each in missing)])
    return Outcomes(dict(runs), early, missing) if early or missing else None
