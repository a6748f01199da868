"""The record of a run's health after an iteration, from which the run knows how to go on.

monitors    how healthy training is, in this iteration and all before it    turnwise.health.monitors
alarm       which rules over the monitors are broken, and the response      turnwise.health.alarms
horizon     the turn limit of the next iteration                            turnwise.curriculum.rules
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from turnwise.config.monitoring import AlarmRule
from turnwise.config.schema import CurriculumSection, RewardSection, Section
from turnwise.credit.batch import weighted_returns
from turnwise.curriculum.plateau import IterationCounts
from turnwise.curriculum.rules import HorizonState, make_curriculum
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.health.added_monitors import measure_added
from turnwise.health.alarms import AlarmRecord, AlarmState, Change, judge
from turnwise.health.guards import in_a_row
from turnwise.health.monitors import Values, compare, measure, remembered

HEALTH = "health 1"
"""The layout of the file. It is in the cache key of who writes it: a changed layout gets another number."""
HEALTH_FILE = "health.json"


class HealthParameters(Section):
    """The parameters of the bookkeeping."""

    iteration: int
    rewards: dict[str, RewardSection]
    start: int
    window: int
    n_gram: int
    rules: dict[str, AlarmRule]
    response: Literal["log", "stop", "return"]
    maximum_returns: int
    change: Change
    """The settings to apply if this iteration returns to a healthy policy."""
    curriculum: CurriculumSection
    turns: int
    """The world's own turn limit."""
    prompts: int | None
    """Number of prompts of a branching rollout, whose first groups alone start at the first turn; None: all do."""
    lag: int = 0
    """The turn limit that is set is the one of iteration `iteration + 1 + lag`."""
    limit: int | None = None
    """With a lag, the turn limit of this iteration's episodes. None: that of the state before, as without a lag."""
    added: dict[str, str] = Field(default_factory=dict)
    """The monitors of the user's own, by name."""


class HealthRecord(Section):
    """The bookkeeping of a run up to and including one iteration, saved in the artifact `health`."""

    monitors: list[dict[str, float]]
    """The monitors of the iterations that later ones are compared with, in order, and of this one, the last."""
    in_a_row: dict[str, int]
    """By guard, the number of consecutive iterations in which its condition has held."""
    alarm: AlarmRecord
    horizon: HorizonState

    @classmethod
    def read(cls, folder: Path) -> HealthRecord:
        """The record that `write` wrote into `folder`."""
        return cls.model_validate_json((folder / HEALTH_FILE).read_text(encoding="utf-8"))

    def write(self, folder: Path) -> None:
        """Write the record into `folder`."""
        (folder / HEALTH_FILE).write_text(json.dumps(self.model_dump(mode="json"), indent=1), encoding="utf-8")


def measure_iteration(
    parameters: HealthParameters, trajectories: Sequence[Trajectory], end_tokens: Collection[int], stage_values: Values
) -> Values:
    """The monitors of one iteration by itself; those that compare it with earlier ones are not among them.

    `end_tokens` are those that end a reply; `stage_values` what other stages have measured, by monitor.
    """
    totals = weighted_returns(trajectory_arrays(trajectories), parameters.rewards)
    values = measure(trajectories, totals, end_tokens=end_tokens, n_gram=parameters.n_gram)
    return {**values, **measure_added(parameters.added, trajectories, totals), **stage_values}


def record_health(
    parameters: HealthParameters, before: HealthRecord | None, monitor_values: Values, whole: Sequence[Trajectory]
) -> tuple[HealthRecord, dict[str, float]]:
    """The record after an iteration and its metrics, named with their group.

        monitor/...    one per monitor that was measured
        alarm/...      per rule 1 if its alarm is on, else 0; `raised`, the number newly raised; `returns`, those so far
        horizon/...    `limit` of this iteration's episodes; `share_at_limit` that it cut off unsolved; `next_limit`,
                       that of the next rollout to be sampled: with a lag, of the iteration after the next

    `before` is the record of the iteration before, `monitor_values` the iteration's own monitors (`measure_iteration`),
    and `whole` are the episodes that were played from their first turn, which the curriculum looks at.
    """
    history: list[Values] = [*(before.monitors if before else []), monitor_values]
    monitors = {**monitor_values, **compare(history, start=parameters.start, window=parameters.window)}
    history[-1] = monitors
    alarm = judge(
        before.alarm.state if before else AlarmState(),
        parameters.iteration,
        monitors,
        parameters.rules,
        response=parameters.response,
        maximum_returns=parameters.maximum_returns,
        change=parameters.change,
    )
    curriculum = make_curriculum(parameters.curriculum.rule, parameters.curriculum.options, parameters.turns)
    horizon = before.horizon if before else curriculum.first_at(1)
    limit = parameters.limit or horizon.limit
    counts = IterationCounts.of(whole, limit)
    # Episodes that were sampled before the limit grew say nothing about the limit of now.
    at_the_limit = counts if limit == horizon.limit else IterationCounts(0, 0, 0)
    following = curriculum.next(horizon, parameters.iteration + parameters.lag, at_the_limit)
    record = HealthRecord(
        monitors=[dict(values) for values in remembered(history, start=parameters.start, window=parameters.window)],
        in_a_row=in_a_row(before.in_a_row if before else {}, monitors),
        alarm=alarm,
        horizon=following,
    )
    metrics = {
        **{f"monitor/{name}": value for name, value in monitors.items()},
        **{f"alarm/{name}": float(name in alarm.on) for name in parameters.rules},
        **{"alarm/raised": float(len(alarm.raised)), "alarm/returns": float(alarm.returns)},
        **{"horizon/limit": limit, "horizon/next_limit": following.limit},
        **({"horizon/share_at_limit": counts.at_limit / counts.episodes} if counts.episodes else {}),
    }
    return record, metrics
