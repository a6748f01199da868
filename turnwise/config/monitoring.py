"""The monitoring sections of `params.yaml`: monitors, alarms and guards, as typed models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from turnwise.config.quantities import Count, Number
from turnwise.config.schema import Section, SelectionSection
from turnwise.errors import ConfigurationError


class Monitors(Section):
    """What is measured of the health of training: see `turnwise.health.monitors`."""

    start: Count
    """Iterations at the beginning of a run whose mean is its own start, which later values are compared with."""
    window: Count
    """Iterations whose median gradient norm the next one is compared with."""
    n_gram: Count
    """Tokens of a phrase whose repetition is counted."""
    probe_every: Count | None
    """Iterations between two probes, which ask models: distance from the warm start, and what thoughts say about their
    prompts. null: none."""
    probe_sample: int = Field(ge=2, le=10_000)
    """Trajectories of a probe. Its cost grows with their square."""
    added: dict[str, str] = Field(default_factory=dict)
    """Monitors of your own, by name: each a function as `module:name` or by entry point, see
    `turnwise.health.added_monitors`."""


class AlarmRule(Section):
    """When a monitor is out of bounds. At least one bound must be given."""

    below: Number | None = None
    """Values below this are out of bounds."""
    above: Number | None = None
    """Values above this are out of bounds."""
    patience: Count = 1
    """Measurements in a row that must be out of bounds before the alarm is raised."""

    @model_validator(mode="after")
    def _require_bounds(self) -> AlarmRule:
        if self.below is None and self.above is None:
            raise ConfigurationError(
                "a rule must have a bound, below or above; found neither: set one, or the rule to null",
                "TW-missing-option",
            )
        if self.below is not None and self.above is not None and self.below > self.above:
            raise ConfigurationError(
                f"below must be at most above, or every value would be out of bounds; found {self.below} and "
                f"{self.above}",
                "TW-reversed-bounds",
            )
        return self


class Alarms(Section):
    """Rules over monitors, and what is done when one is broken: see `turnwise.health.alarms`."""

    response: Literal["log", "stop", "return"]
    """`log`: it is recorded. `stop`: the run ends, and counts as it is. `return`: it goes on from the last healthy
    policy with a changed setting."""
    rules: dict[str, AlarmRule | None]
    """By monitor. null: that monitor has no rule."""
    learning_rate_factor: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
    """What each return multiplies the learning rate by."""
    selection: SelectionSection | None
    """The selection of groups from the first return on. null: as it was."""
    maximum_returns: Count
    """Returns after which another alarm stops the run."""


class Guards(Section):
    """Iterations in a row after which a run that cannot learn is ended: see `turnwise.health.guards`. null: never.

    A run that is ended counts, with the policy that it ended with.
    """

    no_signal: Count | None
    """Iterations in which no advantage differs from 0, while not everything is solved."""
    zero_variance_groups: Count | None
    """Iterations in which the rewards of every group are equal, while not everything is solved."""
    truncated_replies: Count | None
    """Iterations in which every reply was cut off at its maximum length."""
