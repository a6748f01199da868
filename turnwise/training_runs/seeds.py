"""Which runs an ablation needs next: those of all its seeds, or of further ones until its comparisons are decided.

What is decided follows from the results of whole looks alone (`turnwise.statistics.until_decided`), whoever has made
the runs and whenever: so an ablation that was killed goes on as it would have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnwise.agent.playing import the_world
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.results.cells import task_means
from turnwise.statistics import Results
from turnwise.statistics.until_decided import Looks, worth_having
from turnwise.store import Reference
from turnwise.training_runs.state import Run

RunName = tuple[str, int]
"""Variant and seed."""
RunOutcomes = Mapping[RunName, Run | TrainingEnded]
"""Runs, or the faults that have left them out."""


def every_run(experiment: Experiment) -> list[RunName]:
    """Every variant with every seed that it may be given, seed by seed."""
    return [(variant, seed) for seed in experiment.ablation.all_seeds for variant in experiment.ablation.variants]


def next_runs(experiment: Experiment, warm_start: Reference, outcomes: RunOutcomes) -> list[RunName]:
    """The runs that are needed beyond these, seed by seed; none where all is decided or all seeds are used.

    `warm_start` is its evaluation on the test task set. Where a fault has left out every run so far, none is needed.
    """
    rule = experiment.ablation.until
    if rule is None:
        return [each for each in every_run(experiment) if each not in outcomes]
    if outcomes and not any(isinstance(each, Run) for each in outcomes.values()):
        return []
    world = the_world(experiment.world)
    column = world.primary_column
    runs: dict[str, dict[int, dict[str, float]]] = {name: {} for name in experiment.ablation.variants}
    for (variant, seed), outcome in outcomes.items():
        test = outcome.test if isinstance(outcome, Run) else None
        runs[variant][seed] = {} if test is None else task_means(test, world, column)
    start = task_means(warm_start, world, column) if outcomes else {}
    looks = Looks(
        runs, dict.fromkeys(runs, Results({0: start})) if start else {}, rule, worth=worth_having(rule, column.percent)
    )
    return looks.wanted


def make_runs(
    experiment: Experiment,
    warm_start: Reference,
    make: Callable[[Sequence[RunName]], RunOutcomes],
    skip: Callable[[Sequence[RunName]], None] = lambda names: None,
) -> RunOutcomes:
    """All runs that are needed, made look by look; `skip` is told which will not be, as soon as that is known."""
    outcomes: dict[RunName, Run | TrainingEnded] = {}
    remaining = every_run(experiment)
    while names := next_runs(experiment, warm_start, outcomes):
        racing = {variant for variant, _ in names}
        skip([each for each in remaining if each[0] not in racing])
        outcomes |= make(names)
        remaining = [each for each in remaining if each[0] in racing and each not in outcomes]
    skip(remaining)
    return outcomes
