"""Monitors of one's own: functions of the trajectories of an iteration, recorded and watched like the others.

    def longest_thought(trajectories: Sequence[Trajectory], rewards: Sequence[float]) -> float | None:
        return max((len(turn.thought) for each in trajectories for turn in each.turns), default=None)

    monitors: { added: { longest_thought: "my_monitors:longest_thought" } }
    alarms: { rules: { longest_thought: { above: 400, patience: 3 } } }

`rewards` has the raw weighted reward of each trajectory. MLflow has the value as `monitor/longest_thought`, and a rule
of `alarms` may name it. None: it cannot be measured in this iteration, and nothing is recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError
from turnwise.plugins import MONITOR, plugin
from turnwise.world import finite_number

Monitor = Callable[[Sequence[Trajectory], Sequence[float]], float | None]


def monitor_of(name: str) -> Monitor:
    """The monitor of a name (`turnwise.plugins`). Raises ConfigurationError where there is none."""
    function = plugin(MONITOR, "a monitor", name)
    if not inspect.isfunction(function):
        raise ConfigurationError(
            f"a monitor {name!r} must be a function from trajectories and their rewards to a number; found "
            f"{function!r}",
            "TW-plugin-kind",
        )
    monitor: Monitor = function
    return monitor


def require_added_monitors(added: Mapping[str, str], known: Sequence[str]) -> None:
    """Raise ConfigurationError for a monitor that cannot be found, or has the name of one of the `known` ones."""
    for name, function in added.items():
        if name in known or not name.isidentifier():
            raise ConfigurationError(
                f"monitors.added.{name} must have a name of its own, in letters, digits and _: call it something else",
                "TW-taken-name",
            )
        try:
            monitor_of(function)
        except ConfigurationError as error:
            raise ConfigurationError(f"monitors.added.{name}: {error}") from error


def measure_added(
    added: Mapping[str, str], trajectories: Sequence[Trajectory], rewards: Sequence[float]
) -> dict[str, float]:
    """What the added monitors measure, by name. Raises ContractError for anything but a finite number or None."""
    measured: dict[str, float] = {}
    for name, function in added.items():
        value = monitor_of(function)(trajectories, rewards)
        if value is not None:
            measured[name] = finite_number(f"monitor {name}", value, ": return None where it cannot be measured")
    return measured
