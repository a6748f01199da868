"""What runs must have in common before their results may be laid beside each other.

A success rate is one of a world, in a version, with parameters, on a panel of tasks, played in a manner: by another of
these it is another quantity, whatever the methods are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.errors import ConfigurationError

OF_EVALUATIONS = ("samples", "temperature", "seed")
NOT_RECORDED = "not recorded"
LONGEST = 40
"""Characters of a value in a message."""


def circumstances(experiment: Mapping[str, Any], version: str | None, panel: str) -> dict[str, str]:
    """How a run was tested, by what it is called.

    Args:
        experiment: the run's parameters, by section.
        version: of its world; None where the run has not recorded it.
        panel: the digest of its test panel.
    """
    evaluation = {name: experiment["evaluation"][name] for name in OF_EVALUATIONS}
    sections = {"world": experiment["world"], "agent": experiment["agent"], "evaluation": evaluation}
    return {"test panel": panel, "world version": version or NOT_RECORDED, **_flat(sections)}


def differences(of_runs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Where runs differ: by what differs, each value with the runs that have it, in their order."""
    names = dict.fromkeys(name for found in of_runs.values() for name in found)
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        holders: dict[str, list[str]] = {}
        for run, values in of_runs.items():
            holders.setdefault(values.get(name, "not there"), []).append(run)
        if len(holders) > 1:
            found[name] = holders
    return found


def told(found: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """Each difference as a sentence."""
    return [
        f"{name}: " + "; ".join(f"{_shortened(value)} ({', '.join(runs)})" for value, runs in holders.items())
        for name, holders in found.items()
    ]


def require_comparable(of_runs: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigurationError, naming what differs, unless all runs were tested alike."""
    if found := differences(of_runs):
        raise ConfigurationError(
            "runs must have been tested alike to be compared; these differ in\n  "
            + "\n  ".join(told(found))
            + "\ncompare runs with the same test, or say --anyway"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, sort_keys=True)
    return flat


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 4]} ..."
