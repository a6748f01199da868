"""The evaluation protocol, which must be the same for all runs whose results are compared.

A success rate belongs to a world, its version and parameters, a task set, and the settings of agent and evaluation.
With any of these changed it is a different quantity, whatever the methods are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.config.nested import dotted
from turnwise.errors import ConfigurationError

OF_EVALUATIONS = ("samples", "temperature", "seed")
NOT_RECORDED = "not recorded"
LONGEST = 40
"""The most characters of a value that a message shows."""


def circumstances(experiment: Mapping[str, Any], version: str | None, task_set: str) -> dict[str, str]:
    """The evaluation protocol of a run: the names of its settings, with their values as text.

    Args:
        experiment: the run's parameters, by section.
        version: the version of its world; None where the run has not recorded it.
        task set: the digest of its test task set.
    """
    evaluation = {name: experiment["evaluation"][name] for name in OF_EVALUATIONS}
    sections = {"world": experiment["world"], "agent": experiment["agent"], "evaluation": evaluation}
    settings = {name: json.dumps(value, sort_keys=True) for name, value in dotted(sections).items()}
    return {"test task set": task_set, "world version": version or NOT_RECORDED, **settings}


def differences(protocols: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """The settings in which runs differ: by setting, each value with the names of the runs that have it, in order.

    `protocols` has the result of `circumstances` by name of the run.
    """
    names = dict.fromkeys(name for protocol in protocols.values() for name in protocol)
    differing_settings: dict[str, dict[str, list[str]]] = {}
    for name in names:
        holders: dict[str, list[str]] = {}
        for run, values in protocols.items():
            holders.setdefault(values.get(name, "not there"), []).append(run)
        if len(holders) > 1:
            differing_settings[name] = holders
    return differing_settings


def difference_lines(differing_settings: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """Each difference as one line of text, with long values shortened."""
    return [
        f"{name}: " + "; ".join(f"{_shorten(value)} ({', '.join(runs)})" for value, runs in holders.items())
        for name, holders in differing_settings.items()
    ]


def require_comparable(protocols: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigurationError, naming the differences, unless all runs have the same evaluation protocol."""
    if differing_settings := differences(protocols):
        raise ConfigurationError(
            "runs must have been tested alike to be compared; these differ in\n  "
            + "\n  ".join(difference_lines(differing_settings))
            + "\ncompare runs with the same test, or say --anyway",
            "TW-runs-not-comparable",
        )


def _shorten(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 4]} ..."
