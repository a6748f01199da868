"""`what_if`: other credit and losses on a rollout of a recorded run, as numbers and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.python.recorded import RecordedRuns, runs
from flows.runtime.flow_runs import ready_for_prefect, run_flow
from flows.runtime.process_settings import prepare_process
from turnwise.records.episodes import in_training, legible
from turnwise.records.what_if import (
    SHOWN,
    WhatIfResult,
    differences,
    most_different,
    other_experiment,
    side_by_side,
    turn_advantages,
)
from turnwise.reporting.data.episodes import Wanted
from turnwise.results.what_if import WhatIf, compare_rules

if TYPE_CHECKING:
    from flows.what_if import Recredited


def what_if(
    run: str | RecordedRuns,
    settings: Mapping[str, Any] | Iterable[str],
    *,
    iteration: int | None = None,
    remake: bool = False,
    shown: int = SHOWN,
    tracking: str | None = None,
    quiet: bool = False,
) -> WhatIfResult:
    """What a recorded run would have learned from one of its rollouts with other credit or losses.

    Nothing of the run is changed, and what was computed once is found.

    Args:
        run: its id, name or tag, or what `runs` returned.
        settings: of the sections credit, critic, optimization, rewards and selection: by dotted key, or as `KEY=VALUE`.
        iteration: whose rollout; None: the last.
        remake: make the policy, or the rollout, again where it was pruned.
        shown: about how many episodes the page shows.
        tracking: MLflow's store, by default the project's.
        quiet: show no progress.

    Raises:
        ConfigurationError: the settings change nothing, or need what the run does not have or was pruned.
    """
    prepare_process()

    source = (runs(run, tracking=tracking) if isinstance(run, str) else run).one
    number = len(source.artifacts.iterations) if iteration is None else iteration
    recorded_experiment, other = other_experiment(source, number, settings)
    ready_for_prefect(Console(quiet=quiet))
    from flows.what_if import credit_again  # imports Prefect

    recredited: Recredited = run_flow(credit_again, source, number, recorded_experiment, other, remake, quiet)
    advantages = recredited.advantages()
    batch = list(in_training(source, Wanted(), [number]))
    rewards = {name: each.rewards for name, each in recredited.experiments.items()}
    indices = most_different(advantages, [each.sample.trajectory.group for each in batch], shown)
    report = WhatIf(
        title=f"What if: {source.name}, iteration {number}",
        rollout=f"The {len(batch)} episodes of iteration {number} of {source.name}, credited and learned from again.",
        rules=compare_rules({name: turn_advantages(each) for name, each in advantages.items()}),
        settings=differences(recredited.experiments),
        steps={} if recredited.steps is None else recredited.steps.metrics,
        cosines={} if recredited.steps is None else recredited.steps.cosines,
        notes=recredited.notes,
        lineage={
            "rollout": str(recredited.rollout),
            "policy": str(recredited.policy),
            **{f"credit, {name}": str(reference) for name, reference in recredited.credits.items()},
        },
    )
    legible_samples = [each.sample for each in legible([source], [batch[index] for index in indices])]
    return WhatIfResult(
        report,
        side_by_side(dict(enumerate(each.sample for each in batch)), advantages, rewards),
        side_by_side(dict(zip(indices, legible_samples, strict=True)), advantages, rewards),
        f"{source.name}-{number}".replace(" ", "-").replace("/", "-"),
    )
