"""Alarms: which monitor rules an iteration has violated, how the run responds, and the return to a healthy policy."""

from __future__ import annotations

import logging
from typing import Literal

from tasks.health.monitor import read_history
from tasks.models_in_memory import begin_with
from tasks.stage import stage
from turnwise.config.monitoring import AlarmRule
from turnwise.config.schema import Section, SelectionSection
from turnwise.health.alarms import AlarmState, in_words
from turnwise.store import Reference, default_store

logger = logging.getLogger(__name__)

ALARM_FILE = "alarm.json"


class Change(Section):
    """The settings that change when a run returns to a healthy policy."""

    learning_rate: float
    selection: SelectionSection


class HealthRecord(Section):
    """The alarm record of one iteration, saved in the artifact `alarm`."""

    iteration: int
    counts: dict[str, int]
    """By monitor, the number of consecutive measurements out of bounds; monitors at 0 are left out."""
    healthy: int
    """The last healthy iteration; the run returns to the policy that sampled it. 0: the warm start."""
    returns: int
    raised: dict[str, str]
    """Messages of the alarms that this iteration raised, by monitor."""
    response: Literal["none", "log", "stop", "return"]
    change: Change | None
    """The settings from the next iteration on, if the response is `return`; else None."""

    @property
    def state(self) -> AlarmState:
        """The alarm state that the next iteration starts from."""
        return AlarmState(self.counts, self.healthy, self.returns)


class AlarmParameters(Section):
    """The parameters of an alarm."""

    rules: dict[str, AlarmRule]
    response: Literal["log", "stop", "return"]
    maximum_returns: int
    iteration: int
    change: Change
    """The settings to apply if this iteration returns to a healthy policy."""


@stage("alarm", platform_bound=False)
def alarm(parameters: AlarmParameters, *, monitors: Reference, previous: Reference | None) -> Reference:
    """Judge one iteration. `previous` is the alarm record of the iteration before.

    Metrics: per monitor 1 if its alarm is active, else 0; `raised`, the number newly raised; `returns`, the number of
    returns so far.
    """
    values, rules = read_history(monitors)[-1], parameters.rules
    before = AlarmState() if previous is None else read_judgement(previous).state
    state = before.after(parameters.iteration, values, rules)
    on, raised = state.on(rules), state.raised_since(before, rules)
    response = parameters.response if raised else "none"
    if response == "return":
        response = "stop" if state.returns == parameters.maximum_returns else response
    if response == "return":
        state = state.returned()
    judgement = HealthRecord(
        iteration=parameters.iteration,
        counts=dict(state.counts),
        healthy=state.healthy,
        returns=state.returns,
        raised={name: in_words(name, values.get(name), rules[name]) for name in raised},
        response=response,
        change=parameters.change if response == "return" else None,
    )
    with default_store().write("alarm") as draft:
        (draft.folder / ALARM_FILE).write_text(judgement.model_dump_json(indent=1))
        draft.metrics.update({name: float(name in on) for name in rules})
        draft.metrics.update(raised=float(len(raised)), returns=float(state.returns))
    return draft.reference


def read_judgement(reference: Reference) -> HealthRecord:
    """The alarm record that an artifact holds."""
    return HealthRecord.model_validate_json((default_store().folder(reference) / ALARM_FILE).read_text())


class ReturnParameters(Section):
    """Returning has no parameters: it depends on its inputs alone."""


@stage("return_to", platform_bound=False)
def return_to(parameters: ReturnParameters, *, policy: Reference, alarm: Reference) -> Reference:
    """Copy the healthy policy with its optimizer's state into a new artifact that depends on the alarm.

    Its metrics say which iteration it sampled (`returned_to`) and how many returns there were (`returns`).
    """
    judgement = read_judgement(alarm)
    with default_store().write("policy") as draft:
        begin_with(draft, policy)
        draft.metrics.update(returned_to=judgement.healthy, returns=judgement.returns)
    return draft.reference
