"""The configuration of `turnwise pretrain`: what the base policies are made of, and their sizes.

The file is `experiments/pretraining/base.yaml`. Worlds and formats are those of the overlays that it names.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from turnwise.config.messages import explain
from turnwise.config.overlays import read_yaml
from turnwise.config.quantities import (
    Batch,
    Count,
    Layers,
    LearningRate,
    Positive,
    Seed,
    Share,
    Threads,
    Tokens,
    Width,
)
from turnwise.config.schema import Section, SupervisedSteps
from turnwise.errors import ConfigurationError


class WorldDemonstrations(Section):
    """The demonstrations of one world's training tasks."""

    overlays: list[str]
    """The experiment in this world, as files laid over params.yaml: its world, format and length of a context."""
    tasks: Count
    """Training tasks, one demonstration each."""
    noise: Share
    """Share of turns that the random baseline plays."""
    weight: Positive
    """How often a sequence is drawn from this world, relative to the other sources."""


class Copying(Section):
    """Sequences that teach to copy what was never seen before: see `lab.pretraining.corpus`."""

    sequences: Count
    """Of each kind."""
    longest_span: Annotated[int, Field(ge=4, le=1000)]
    """Most tokens of a span of which pieces are repeated."""
    repetition_tokens: Tokens
    """Tokens of such a sequence."""
    facts: Annotated[int, Field(ge=2, le=1000)]
    """Most facts that are told before one of them is asked for."""
    longest_name: Annotated[int, Field(ge=2, le=100)]
    """Most characters of a made-up name."""
    weight: Positive
    """How often a sequence of either kind is drawn, relative to the other sources."""


class BaseSize(Section):
    """The size of one base policy."""

    hidden: Width
    layers: Layers
    heads: Layers
    feed_forward: Width
    initial_deviation: Positive
    """Standard deviation of the initial weights."""
    learning_rate: LearningRate


class Phase(Section):
    """Some steps that draw from the same sources."""

    steps: Count
    batch: Batch
    """Sequences per step."""
    sources: list[str] | None
    """The sources of the corpus that are drawn from, by their weights: worlds, repetitions, recalls. null:
    all."""


class PretrainingSteps(SupervisedSteps):
    """How the base policies are trained."""

    phases: list[Phase]
    """In order. To copy is learned first, since it is not learned next to everything else: after 1,000 steps in a
    mixture of all sources, repetitions were predicted no better than by chance."""
    steps_per_stage: Count
    """Steps after which the policy is stored: a run that is killed goes on from there."""
    threads: Threads
    """Of the learner. Results to the bit depend on them."""

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    def phase_of(self, step: int) -> Phase:
        """The phase of a step, counted from 1."""
        ends = itertools.accumulate(phase.steps for phase in self.phases)
        return next(phase for phase, end in zip(self.phases, ends, strict=True) if step <= end)


class Pretraining(Section):
    """The whole configuration of `turnwise pretrain`."""

    seed: Seed
    vocabulary: Width
    """Entries of the one tokenizer of all base policies."""
    context_tokens: Tokens
    """Positions of the base policies; longer demonstrations are cut."""
    observed_share: Share
    """Share of the demonstrations in which observations are trained on as well as replies."""
    worlds: dict[str, WorldDemonstrations]
    copying: Copying
    training: PretrainingSteps
    policies: dict[str, BaseSize]


def load_pretraining(file: Path) -> Pretraining:
    """The configuration in a YAML file. Raises ConfigurationError for a key or a value that is not known."""
    try:
        return Pretraining.model_validate(read_yaml(file))
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {explain(error, Pretraining)}") from None
