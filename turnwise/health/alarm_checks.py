"""Checks of the sections `monitors` and `alarms` of a configuration, before any compute."""

from __future__ import annotations

from turnwise.config.monitoring import Alarms, Monitors
from turnwise.config.schema import SelectionSection
from turnwise.credit.selection import require_selection
from turnwise.errors import ConfigurationError
from turnwise.health.monitors import FEWEST_NORMS, MONITORS, OF_HISTORY, OF_PROBE
from turnwise.suggestions import nearest


def require_alarms(alarms: Alarms, monitors: Monitors, selection: SelectionSection, iterations: int) -> None:
    """Raise ConfigurationError for a rule whose monitor is not measured, and for a response that can have no effect.

    `selection` and `iterations` are those of the experiment.
    """
    rules = {name: rule for name, rule in alarms.rules.items() if rule is not None}
    for name in alarms.rules:
        if name not in MONITORS:
            raise ConfigurationError(f"alarms.rules: {name!r} is not a monitor; {nearest(name, MONITORS)}")
    for name in rules:
        if name in OF_PROBE and monitors.probe_every is None:
            raise ConfigurationError(
                f"alarms.rules.{name} must be measured; found monitors.probe_every: null: set it, or the rule to null"
            )
    if alarms.selection is not None:
        require_selection(alarms.selection.rule, alarms.selection.options)
    if alarms.response == "log":
        return
    _require_effect(alarms, monitors, iterations)
    if alarms.response == "return" and alarms.learning_rate_factor == 1.0 and alarms.selection in (None, selection):
        raise ConfigurationError(
            "a return must change something, or the same would happen again; found alarms.learning_rate_factor: 1 and "
            "alarms.selection as it is: lower the factor, or name a tighter selection"
        )


def _require_effect(alarms: Alarms, monitors: Monitors, iterations: int) -> None:
    """Raise ConfigurationError unless some rule can raise an alarm within the run."""
    earliest = [
        _measured_from(name, monitors) + (rule.patience - 1) * (_spacing(name, monitors))
        for name, rule in alarms.rules.items()
        if rule is not None
    ]
    if not earliest or min(earliest) > iterations:
        when = f"could raise one in iteration {min(earliest)} at the earliest" if earliest else "are none"
        raise ConfigurationError(
            f"alarms.response: {alarms.response} must be able to happen; the rules {when}, and there are {iterations} "
            "iterations: shorten monitors.start or the rules' patience, or set the response to log"
        )


def _measured_from(name: str, monitors: Monitors) -> int:
    """The first iteration, counted from 1, in which a monitor can be measured."""
    if name == "gradient_norm_of_median":
        return FEWEST_NORMS + 1
    return monitors.start + 1 if name in OF_HISTORY else 1


def _spacing(name: str, monitors: Monitors) -> int:
    """Iterations between two measurements."""
    return (monitors.probe_every or 1) if name in OF_PROBE else 1
