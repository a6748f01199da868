"""Health: the bookkeeping at the end of an iteration, from which the run knows how to go on.

    monitors    how healthy training is, in this iteration and all before it    turnwise.health.monitors
    alarm       which rules over the monitors are broken, and the response      turnwise.health.alarms
    horizon     the turn limit of the next iteration                            turnwise.curriculum.rules

The record is an artifact, so a resumed run continues from the same state. The flow reads the turn limit from it and
passes the limit, not the artifact, to the next rollout as a parameter: rollouts that differ only in how their limit was
arrived at are the same, and variants of an ablation share cached rollouts until their limits diverge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from tasks.caching import depends_on
from tasks.health.record import HEALTH_FILE, HealthRecord, read_health
from tasks.models_in_memory import POLICY, begin_with
from tasks.orchestration.deferred import task
from tasks.playing import frame_of
from tasks.rollout.in_memory import trajectories_of
from turnwise.agent.branching import turn_of
from turnwise.config.monitoring import AlarmRule
from turnwise.config.schema import CurriculumSection, RewardSection, Section
from turnwise.credit.batch import weighted_returns
from turnwise.curriculum.plateau import IterationCounts
from turnwise.curriculum.rules import make_curriculum
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.health.added_monitors import measure_added
from turnwise.health.alarms import AlarmState, Change, judge
from turnwise.health.guards import in_a_row
from turnwise.health.monitors import OF_PROBE, Values, compare, measure, remembered
from turnwise.plugins import MONITOR, plugin_modules
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients


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


def _plugin_code(parameters: HealthParameters) -> list[str]:
    return plugin_modules(MONITOR, parameters.added.values())


def _plugin_reads(parameters: HealthParameters) -> dict[str, Any]:
    return plugin_ingredients(_plugin_code(parameters))


@task(name="health", task_run_name="{label}: health", retries=1)
@depends_on(
    kernel=(
        "turnwise.agent.branching",
        "turnwise.credit.batch",
        "turnwise.curriculum.rules",
        "turnwise.health.added_monitors",
        "turnwise.health.alarms",
        "turnwise.health.guards",
        "turnwise.health.monitors",
        "turnwise.policy.function_frame",
    ),
    writes="health 1",
    code=_plugin_code,
    reads=_plugin_reads,
    platform_bound=False,
)
def health(
    parameters: HealthParameters,
    *,
    rollout: Reference,
    credit: Reference,
    tokenizer: Reference,
    policy: Reference | None,
    probe: Reference | None,
    previous: Reference | None,
    label: str = "health",
) -> Reference:
    """Compute the monitors of an iteration, judge them by the alarm rules, and set the next turn limit.

    `policy` is the result of the update, None where there was none; `probe` the measurements by models, None where the
    batch was not probed; `previous` the record of the iteration before. Metrics, named with their group:

        monitor/...    one per monitor that was measured
        alarm/...      per rule 1 if its alarm is on, else 0; `raised`, the number newly raised; `returns`, those so far
        horizon/...    `limit` of this iteration's episodes; `share_at_limit` that it cut off unsolved; `next_limit`,
                       that of the next rollout to be sampled: with a lag, of the iteration after the next
    """
    before = None if previous is None else read_health(previous)
    trajectories = trajectories_of(rollout)
    history: list[Values] = [
        *(before.monitors if before else []),
        _measured(parameters, trajectories, credit, tokenizer, policy, probe),
    ]
    monitors = {**history[-1], **compare(history, start=parameters.start, window=parameters.window)}
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
    horizon = before.horizon if before else curriculum.first()
    limit = parameters.limit or horizon.limit
    counts = IterationCounts.of(_from_the_first_turn(trajectories, parameters.prompts), limit)
    # Episodes that were sampled before the limit grew say nothing about the limit of now.
    at_the_limit = counts if limit == horizon.limit else IterationCounts(0, 0, 0)
    following = curriculum.next(horizon, parameters.iteration + parameters.lag, at_the_limit)
    kept = remembered(history, start=parameters.start, window=parameters.window)
    record = HealthRecord(
        monitors=[dict(values) for values in kept],
        in_a_row=in_a_row(before.in_a_row if before else {}, monitors),
        alarm=alarm,
        horizon=following,
    )
    with default_store().write("health") as draft:
        (draft.folder / HEALTH_FILE).write_text(json.dumps(record.model_dump(mode="json"), indent=1))
        draft.metrics.update({f"monitor/{name}": value for name, value in monitors.items()})
        draft.metrics.update({f"alarm/{name}": float(name in alarm.on) for name in parameters.rules})
        draft.metrics.update({"alarm/raised": float(len(alarm.raised)), "alarm/returns": float(alarm.returns)})
        draft.metrics.update({"horizon/limit": limit, "horizon/next_limit": following.limit})
        if counts.episodes:
            draft.metrics["horizon/share_at_limit"] = counts.at_limit / counts.episodes
    return draft.reference


def _measured(
    parameters: HealthParameters,
    trajectories: Sequence[Trajectory],
    credit: Reference,
    tokenizer: Reference,
    policy: Reference | None,
    probe: Reference | None,
) -> Values:
    """The monitors of one iteration by itself; those that compare it with earlier ones are not among them."""
    totals = weighted_returns(trajectory_arrays(trajectories), parameters.rewards)
    values = measure(trajectories, totals, end_tokens=frame_of(tokenizer).end_tokens, n_gram=parameters.n_gram)
    values |= measure_added(parameters.added, trajectories, totals)
    credited = default_store().metrics(credit)
    values["no_signal"] = float(credited["zero_variance_groups"] == credited["groups"])
    updated = {} if policy is None else default_store().metrics(policy)
    if "gradient_norm" in updated:
        values["gradient_norm"] = updated["gradient_norm"]
    probed = {} if probe is None else default_store().metrics(probe)
    return values | {name: probed[name] for name in OF_PROBE if name in probed}


def _from_the_first_turn(trajectories: Sequence[Trajectory], prompts: int | None) -> Sequence[Trajectory]:
    """The episodes that were played from their first turn: of a branching rollout of `prompts` tasks, not all are."""
    if prompts is None:
        return trajectories
    return [trajectory for trajectory in trajectories if turn_of(trajectory.group, prompts) == 0]


class ReturnParameters(Section):
    """Returning has no parameters: it depends on its inputs alone."""


@task(name="return_to", task_run_name="{label}: return_to", retries=1)
@depends_on(kernel=(), writes=POLICY, platform_bound=False)
def return_to(
    parameters: ReturnParameters, *, policy: Reference, health: Reference, label: str = "return_to"
) -> Reference:
    """Copy the healthy policy with its optimizer's state into a new artifact that depends on the alarm.

    Its metrics say which iteration it sampled (`returned_to`) and how many returns there were (`returns`).
    """
    alarm = read_health(health).alarm
    with default_store().write("policy") as draft:
        begin_with(draft, policy)
        draft.metrics.update(returned_to=alarm.healthy, returns=alarm.returns)
    return draft.reference
