"""Turnwise: reproducible reinforcement learning of multi-turn language-model agents.

    import turnwise as tw

    experiment = tw.load("experiments/starpo_s.yaml")
    done = tw.ablation(experiment)
    done.curves(), done.turns(), done["mt-grpo seed 1"].policy().model, done.report.figures

`PUBLIC` lists the public names and where each is defined; `__init__.pyi`, next to this file, says the same to type
checkers and editors, and is not read here. A name is imported when it is first used, so that importing this package
imports nothing heavy. What runs experiments is defined in `flows`, above the library: a user who asks for it gets it
from there, and no module of the library imports it.

The library does not use Prefect or DVC, and uses MLflow only in `turnwise.tracking`.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_INSTALLED_BESIDE = ("flows", "tasks", "envs")
"""The packages that this distribution installs next to `turnwise`. Nobody else needs to import them."""

PUBLIC = {
    name: module
    for module, names in {
        "turnwise.reporting.ablation_report": "AblationReport read_report",
        "flows.python.experiments": "load",
        "turnwise.reporting.judging": "judge",
        "flows.python.outside_agents": "Learned learn record",
        "flows.python.recorded": "OpenedPolicy RecordedRuns runs",
        "flows.python.running": "FinishedAblation ablation evaluate prepare run sweep",
        "flows.python.what_if": "what_if",
        "flows.sweep": "SweepResult",
        "turnwise.training_runs.observing": "StageCall",
        "turnwise.agent.added_rewards": "RewardFunction",
        "turnwise.checking": "CheckReport check_world",
        "turnwise.checking.added_rewards": "check_reward",
        "turnwise.checking.credit_rules": "check_rule",
        "turnwise.config.sweeps": "Range",
        "turnwise.credit": "CreditBatch Estimator Restriction estimate",
        "turnwise.data.arrays": "Ragged",
        "turnwise.data.trajectory": "Ending Trajectory Turn TurnKind",
        "turnwise.errors": "ConfigurationError RewardMissing TrainingEnded TurnwiseError",
        "turnwise.experiment": "Experiment",
        "turnwise.store": "Reference",
        "turnwise.tracking.finding": "RecordedRun",
        "turnwise.records.what_if": "WhatIfResult credit_rollouts",
        "turnwise.world": "Column Environment Limits Observation Remaining Reward ScriptedAction Split Step Task World "
        "installed_worlds make_world",
    }.items()
    for name in names.split()
}
"""By public name, the module that defines it under the same name."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if PUBLIC[name].partition(".")[0] in _INSTALLED_BESIDE:
        _require_own_packages()
    value = globals()[name] = getattr(import_module(PUBLIC[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})


@cache
def _require_own_packages() -> None:
    """Raise ImportError where a module of the user's hides one of the packages that are installed with this one."""
    ours = Path(__file__).resolve().parents[1]
    for name in _INSTALLED_BESIDE:
        spec = find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin is None or origin.parents[1] != ours:
            raise ImportError(
                f"turnwise needs its own package {name!r}, at {ours / name}; Python finds "
                f"{origin or 'none'} instead: rename that, or take its folder from the front of sys.path"
            )
