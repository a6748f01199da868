"""Alarms: rules over monitors, and the state that they carry from one iteration to the next.

A rule counts the consecutive measurements that are out of its bounds; when the count reaches the rule's patience the
alarm is raised, once, and stays on until a measurement is within bounds. A monitor that was not measured in an
iteration keeps its count. Where every episode of an iteration is solved, equal rewards within groups raise no alarm. An
iteration is healthy when all counts are 0: the policy that sampled it is one that a run can go back to.

The state is a function of the measurements alone, so a resumed run raises the same alarms as one that never stopped.
`docs/echo-trap.md` has the measurements that useful bounds come from. `require_alarms` checks the rules of an
experiment before any compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from turnwise.config.monitoring import AlarmRule, Alarms, Monitors
from turnwise.config.schema import Section, SelectionSection
from turnwise.credit.selection import require_selection
from turnwise.errors import ConfigurationError
from turnwise.health.added_monitors import require_added_monitors
from turnwise.health.monitors import FEWEST_NORMS, MONITORS, OF_HISTORY, OF_PROBE, Values
from turnwise.suggestions import nearest

Rules = Mapping[str, AlarmRule]
"""The alarm rules, by name of the monitor."""
OF_SPREAD = frozenset({"reward_deviation", "reward_deviation_of_start", "zero_variance_groups"})
"""Monitors of the spread of rewards within groups."""


@dataclass(frozen=True)
class AlarmState:
    """The state of all alarm rules after an iteration."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """By monitor, the number of consecutive measurements out of bounds; counts of 0 are left out."""
    healthy: int = 0
    """The last healthy iteration; 0 before there is one."""
    returns: int = 0
    """How often the run has gone back."""

    def after(self, iteration: int, values: Values, rules: Rules) -> AlarmState:
        """The state after `iteration`, whose monitors have `values`."""
        counts = {}
        for name, rule in rules.items():
            if name not in values:
                count = self.counts.get(name, 0)
            else:
                broken = out_of_bounds(values[name], rule) and not (name in OF_SPREAD and values.get("success") == 1.0)
                count = self.counts.get(name, 0) + 1 if broken else 0
            if count:
                counts[name] = count
        return replace(self, counts=counts, healthy=self.healthy if counts else iteration)

    def on(self, rules: Rules) -> tuple[str, ...]:
        """The monitors whose alarm is on."""
        return tuple(name for name, rule in rules.items() if self.counts.get(name, 0) >= rule.patience)

    def raised_since(self, before: AlarmState, rules: Rules) -> tuple[str, ...]:
        """The monitors whose alarm is on now and was not before."""
        return tuple(name for name in self.on(rules) if name not in before.on(rules))

    def returned(self) -> AlarmState:
        """The state after the run has gone back: all counts are 0, and the last healthy iteration stays the same."""
        return replace(self, counts={}, returns=self.returns + 1)


class Change(Section):
    """The settings that change when a run returns to a healthy policy."""

    learning_rate: float
    selection: SelectionSection


class AlarmRecord(Section):
    """What the alarms found in one iteration, and how the run responds."""

    iteration: int
    counts: dict[str, int]
    """By monitor, the number of consecutive measurements out of bounds; monitors at 0 are left out."""
    healthy: int
    """The last healthy iteration; the run returns to the policy that sampled it. 0: the warm start."""
    returns: int
    """How often the run has gone back, this iteration included."""
    on: tuple[str, ...]
    """The monitors whose alarm is on."""
    raised: dict[str, str]
    """Messages of the alarms that this iteration raised, by monitor."""
    response: Literal["none", "log", "stop", "return"]
    change: Change | None
    """The settings from the next iteration on, if the response is `return`; else None."""

    @property
    def state(self) -> AlarmState:
        """The alarm state that the next iteration starts from."""
        return AlarmState(self.counts, self.healthy, self.returns)


def judge(
    before: AlarmState,
    iteration: int,
    values: Values,
    rules: Rules,
    *,
    response: Literal["log", "stop", "return"],
    maximum_returns: int,
    change: Change,
) -> AlarmRecord:
    """Judge an iteration by its monitors; `before` is the state after the iteration before.

    A newly raised alarm gets the configured response. After `maximum_returns` returns, the next one stops the run.
    """
    state = before.after(iteration, values, rules)
    on, raised = state.on(rules), state.raised_since(before, rules)
    effect: Literal["none", "log", "stop", "return"] = response if raised else "none"
    if effect == "return":
        effect = "stop" if state.returns == maximum_returns else "return"
    if effect == "return":
        state = state.returned()
    return AlarmRecord(
        iteration=iteration,
        counts=dict(state.counts),
        healthy=state.healthy,
        returns=state.returns,
        on=on,
        raised={name: in_words(name, values.get(name), rules[name]) for name in raised},
        response=effect,
        change=change if effect == "return" else None,
    )


def out_of_bounds(value: float, rule: AlarmRule) -> bool:
    """Whether a value is out of a rule's bounds. A value on a bound is not."""
    return (rule.below is not None and value < rule.below) or (rule.above is not None and value > rule.above)


def in_words(name: str, value: float | None, rule: AlarmRule) -> str:
    """The message of a raised alarm: the bounds, the measured value, and what it usually means, of one of ours."""
    bounds = [] if rule.below is None else [f"at least {rule.below:g}"]
    bounds += [] if rule.above is None else [f"at most {rule.above:g}"]
    measurement = "" if value is None else f", and is {_format_value(value, rule)}"
    times = "" if rule.patience == 1 else f" ({rule.patience} measurements in a row were not)"
    meaning = f": {MEANINGS[name]}" if name in MEANINGS else ""
    return f"{name} must be {' and '.join(bounds)}{measurement}{times}{meaning}"


def _format_value(value: float, rule: AlarmRule) -> str:
    """A value in three digits, or in as many as show that it is out of bounds."""
    texts = (f"{value:.{digits}g}" for digits in range(3, 17))
    return next((text for text in texts if out_of_bounds(float(text), rule)), f"{value:.3g}")


MEANINGS: Mapping[str, str] = {
    "reward_deviation": "the replies of a group earn alike, so that nothing tells better from worse",
    "reward_deviation_of_start": "the replies of a group earn more alike than at first; the Echo Trap begins so",
    "zero_variance_groups": "most groups carry no signal; tasks are too easy or too hard, or replies are all the same",
    "entropy": "the policy is nearly certain of every token, or nearly certain of none",
    "entropy_of_start": "the policy has lost its variety, or its mind",
    "reply_tokens": "replies have shrunk to nothing, or run on",
    "reply_tokens_of_start": "replies have shrunk, or grown, far beyond what the policy began with",
    "truncated_replies": "replies do not end",
    "invalid_replies": "replies cannot be read as actions",
    "repeated_phrases": "replies repeat themselves",
    "shared_phrases": "the replies of a group are made of the same phrases",
    "distinct_replies": "the replies of a group are the same",
    "success": "the policy solves too little, or all",
    "gradient_norm": "the update is unlike those that the learning rate was chosen for",
    "gradient_norm_of_median": "the gradient is far larger than usual; this is how policies are lost for good",
    "kl_warm_start": "the policy is far from the warm start",
    "mutual_information": "thoughts no longer depend on their prompts; they are templates",
    "retrieval_accuracy": "thoughts no longer tell which prompt they belong to; they are templates",
}
"""By monitor, what a value out of bounds usually means."""


def require_alarms(alarms: Alarms, monitors: Monitors, selection: SelectionSection, iterations: int) -> None:
    """Raise ConfigurationError for a rule whose monitor is not measured, and for a response that can have no effect.

    `selection` and `iterations` are those of the experiment.
    """
    rules = {name: rule for name, rule in alarms.rules.items() if rule is not None}
    require_added_monitors(monitors.added, MONITORS)
    for name in alarms.rules:
        if name not in (*MONITORS, *monitors.added):
            known = (*MONITORS, *monitors.added)
            raise ConfigurationError(
                f"alarms.rules: {name!r} is not a monitor; {nearest(name, known)}", "TW-unknown-monitor"
            )
    for name in rules:
        if name in OF_PROBE and monitors.probe_every is None:
            raise ConfigurationError(
                f"alarms.rules.{name} must be measured; found monitors.probe_every: null: set it, or the rule to null",
                "TW-unmeasured-monitor",
            )
    if alarms.selection is not None:
        require_selection(alarms.selection.rule, alarms.selection.options)
    if alarms.response == "log":
        return
    _require_effect(alarms, monitors, iterations)
    if alarms.response == "return" and alarms.learning_rate_factor == 1.0 and alarms.selection in (None, selection):
        raise ConfigurationError(
            "a return must change something, or the same would happen again; found alarms.learning_rate_factor: 1 and "
            "alarms.selection as it is: lower the factor, or name a tighter selection",
            "TW-changes-nothing",
        )


def _require_effect(alarms: Alarms, monitors: Monitors, iterations: int) -> None:
    """Raise ConfigurationError unless some rule can raise an alarm within the run."""
    earliest = []
    for name, rule in alarms.rules.items():
        if rule is not None:
            first = monitors.start + 1 if name in OF_HISTORY else 1
            if name == "gradient_norm_of_median":
                first = FEWEST_NORMS + 1
            spacing = (monitors.probe_every or 1) if name in OF_PROBE else 1
            earliest.append(first + (rule.patience - 1) * spacing)
    if not earliest or min(earliest) > iterations:
        when = f"could raise one in iteration {min(earliest)} at the earliest" if earliest else "are none"
        raise ConfigurationError(
            f"alarms.response: {alarms.response} must be able to happen; the rules {when}, and there are {iterations} "
            "iterations: shorten monitors.start or the rules' patience, or set the response to log",
            "TW-late-alarm",
        )
