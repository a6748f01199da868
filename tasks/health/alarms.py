"""Alarm: which rules an iteration has broken, and what the run does then; and the way back to a healthy policy."""

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
    """What is different after the run has gone back."""

    learning_rate: float
    selection: SelectionSection


class HealthRecord(Section):
    """What an artifact `alarm` says of one iteration."""

    iteration: int
    counts: dict[str, int]
    healthy: int
    """The last healthy iteration: the policy that sampled it is what the run goes back to. 0: the warm start."""
    returns: int
    raised: dict[str, str]
    """By monitor, the alarms that this iteration raised, in words."""
    response: Literal["none", "log", "stop", "return"]
    change: Change | None
    """With a return, what is different from now on."""

    @property
    def state(self) -> AlarmState:
        """What the next iteration begins with."""
        return AlarmState(self.counts, self.healthy, self.returns)


class AlarmParameters(Section):
    """What an alarm reads."""

    rules: dict[str, AlarmRule]
    response: Literal["log", "stop", "return"]
    maximum_returns: int
    iteration: int
    change: Change
    """What a return of this iteration would change."""


@stage("alarm", platform_bound=False)
def alarm(parameters: AlarmParameters, *, monitors: Reference, previous: Reference | None) -> Reference:
    """The judgement of one iteration. `previous` is that of the iteration before.

    Metrics: 1 for each monitor whose alarm is on, else 0; `raised`, how many went on; `returns`, those so far.
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
    """What an alarm's artifact says."""
    return HealthRecord.model_validate_json((default_store().folder(reference) / ALARM_FILE).read_text())


class ReturnParameters(Section):
    """Going back reads nothing but its inputs."""


@stage("return_to", platform_bound=False)
def return_to(parameters: ReturnParameters, *, policy: Reference, alarm: Reference) -> Reference:
    """The healthy policy with its optimizer's state, as what follows from the alarm: an artifact of its own, whose
    metrics say which iteration sampled it.
    """
    judgement = read_judgement(alarm)
    with default_store().write("policy") as draft:
        begin_with(draft, policy)
        draft.metrics.update(returned_to=judgement.healthy, returns=judgement.returns)
    return draft.reference
