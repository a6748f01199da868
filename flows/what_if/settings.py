"""What may be set otherwise of a recorded iteration, and the configuration that comes of it, without Prefect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.health.health import read_health
from turnwise.config.overlays import parse_setting, read_yaml, with_value
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build
from turnwise.project import project_root
from turnwise.runs.state import changed
from turnwise.tracking.finding import RecordedRun

SECTIONS = ("credit", "critic", "optimization", "rewards", "selection")
"""The sections that say what is made of a rollout. All others say how it is sampled, or with which policy."""
FIXED = ("optimization.adapter", "optimization.iterations", "optimization.method", "critic.trunk")
"""Keys of theirs that say which policy there is."""


def other_experiment(
    run: RecordedRun, number: int, settings: Mapping[str, Any] | Iterable[str]
) -> tuple[Experiment, Experiment]:
    """The configuration with which a run learned from its rollout `number`, and that with these settings.

    Raises ConfigurationError for an iteration that the run has not, for a setting that would have sampled another
    rollout or needs what the run does not have, and for settings that change nothing.
    """
    made = run.artifacts.iterations
    if not 1 <= number <= len(made):
        raise ConfigurationError(f"--iteration must be from 1 to {len(made)}, those of {run.name}; found {number}")
    recorded = _learned_with(run, number)
    if recorded.optimization.method == "evolution":
        raise ConfigurationError(
            f"{run.name} imitated its successes (optimization.method: evolution), which no advantages say anything of: "
            "name a run that learned by reinforcement"
        )
    values: dict[str, Any] = recorded.model_dump(mode="json")
    changes = list(settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings))
    for key, value in changes:
        if key.partition(".")[0] not in SECTIONS or key in FIXED:
            raise ConfigurationError(
                f"a recorded rollout is not sampled again and has one policy: what-if takes keys of "
                f"{', '.join(SECTIONS)}, but for {', '.join(FIXED)}; found {key}: run an experiment with it"
            )
        values = with_value(values, key, value)
    other = build(values, like=recorded)
    if other == recorded:
        raise ConfigurationError(
            f"the settings must differ from those of {run.name}, e.g. -s credit.estimator=rloo; found "
            f"{'the same values' if changes else 'none'}"
        )
    if other.has_critic and "values" not in made[number - 1]:
        raise ConfigurationError(
            f"credit.estimator {other.credit.estimator} needs a critic's values, and {run.name} learned without a "
            "critic: choose an estimator without one, or a run with one"
        )
    if other.selection != recorded.selection and other.selection.rule == "mixed":
        raise ConfigurationError(
            "selection.rule mixed samples further groups until there are enough, and a recorded rollout has those that "
            "it has: choose another rule"
        )
    return recorded, other


def _learned_with(run: RecordedRun, number: int) -> Experiment:
    """The configuration of a run's iteration: as it began, with what alarms had changed before."""
    artifacts = run.artifacts
    project = read_yaml(project_root() / "params.yaml")
    ablation = {**project["ablation"], "name": run.ablation or run.name, "seeds": [artifacts.seed]}
    experiment = build(
        {
            **{name: project[name] for name in ("storage", "tracking")},
            **artifacts.experiment,
            "ablation": {**ablation, "variants": [artifacts.variant]},
            "variants": {artifacts.variant: {}},
        }
    )
    for made in artifacts.iterations[: number - 1]:
        if "returned" in made and (change := read_health(made["health"]).alarm.change) is not None:
            experiment = changed(experiment, change)
    return experiment
