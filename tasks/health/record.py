"""What an artifact `health` holds: the state of a run's monitors, guards and alarms, and its turn limit."""

from __future__ import annotations

from turnwise.config.schema import Section
from turnwise.curriculum.rules import HorizonState
from turnwise.health.alarms import AlarmRecord
from turnwise.store import Reference, default_store

HEALTH_FILE = "health.json"


class HealthRecord(Section):
    """The bookkeeping of a run up to and including one iteration, saved in the artifact `health`."""

    monitors: list[dict[str, float]]
    """The monitors of the iterations that later ones are compared with, in order, and of this one, the last."""
    in_a_row: dict[str, int]
    """By guard, the number of consecutive iterations in which its condition has held."""
    alarm: AlarmRecord
    horizon: HorizonState


def read_health(reference: Reference) -> HealthRecord:
    """The record that an artifact `health` holds."""
    return HealthRecord.model_validate_json((default_store().folder(reference) / HEALTH_FILE).read_text())


def read_monitors(reference: Reference) -> dict[str, float]:
    """The monitors of one iteration, from the metrics of its artifact `health`."""
    metrics = default_store().metrics(reference)
    return {name.removeprefix("monitor/"): value for name, value in metrics.items() if name.startswith("monitor/")}
