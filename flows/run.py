"""Run: trains and tests one variant with one seed.

An iteration runs the stages of the roster that are due in it (`flows.roster`). After it, guards and alarms may end the
run or return it to a healthy policy, and what the section `storage` does not keep is pruned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from flows import roster
from flows.health import may_return_to, respond
from flows.learning import first_critic
from flows.prepare import Prepared
from flows.run_state import Iteration, Models, Run
from flows.sampling import evaluation, evaluation_at_horizon
from tasks.health.health import read_health
from tasks.rollout.evaluate import success_of
from turnwise.experiment import Experiment
from turnwise.store import default_store
from turnwise.store.retention import Link, files_to_prune, kept


def run_variant(
    experiment: Experiment,
    prepared: Prepared,
    variant: str,
    seed: int,
    on_iteration: Callable[[Run, Iteration], None] = lambda run, iteration: None,
) -> Run:
    """Train and test one variant with one seed. `experiment` is the variant's own configuration.

    Raises:
        TrainingEnded: a guard or an alarm ends the run.
    """
    run = _begin(experiment, prepared, variant, seed)
    for number in range(1, experiment.optimization.iterations + 1):
        iteration = _iterate(run, number)
        run.iterations.append(iteration)
        run.models = Models(iteration.policy, iteration.critic)
        on_iteration(run, iteration)
        respond(run)
        _prune_behind(run)
    label, limit = f"{run.name} on the test panel", run.iterations[-1].limit
    run.test = evaluation(label, experiment, "test", prepared, run.policy)
    run.test_at_horizon = evaluation_at_horizon(label, experiment, "test", prepared, run.policy, limit)
    return run


def _begin(experiment: Experiment, prepared: Prepared, variant: str, seed: int) -> Run:
    """A run before its first iteration: the warm start is evaluated, and the critic is made if there is one."""
    label = f"{variant} seed {seed} before iteration 1"
    start = evaluation(label, experiment, "validation", prepared, prepared.warm_start)
    run = Run(variant, seed, experiment, prepared, Models(prepared.warm_start, None), start)
    run.start_at_horizon = evaluation_at_horizon(
        label, experiment, "validation", prepared, prepared.warm_start, _turn_limit(run)
    )
    run.models = replace(run.models, critic=first_critic(run))
    return run


def _iterate(run: Run, number: int) -> Iteration:
    """Run the stages that are due in one iteration."""
    iteration = Iteration(number, run.models, _turn_limit(run))
    for stage in roster.due(run.experiment, number):
        made = stage.make(run, iteration)
        if made is not None:
            iteration.made[stage.name] = made
    return iteration


def _turn_limit(run: Run) -> int | None:
    """The turn limit of the next iteration; None if the world's own is as short."""
    if run.iterations:
        limit = read_health(run.iterations[-1].health).horizon.limit
    else:
        limit = run.experiment.made_curriculum.first().limit
    return limit if limit < run.experiment.made_world.limits.turns else None


def _prune_behind(run: Run) -> None:
    """Prune what the section `storage` does not keep of the run's policies and critics.

    What other runs start from too, what the next iteration starts from, and what an alarm may return to are never
    touched. If another run still needs a pruned policy that both have made, it is recomputed on request.
    """
    begun = run.models_before(1)
    chains = defaultdict(list, {"policy": [Link(begun.policy)]})
    if begun.critic is not None and begun.critic != begun.policy:
        chains[begun.critic.kind].append(Link(begun.critic))
    for iteration in run.iterations:
        for stage, made in roster.made_in(iteration):
            if stage.follows:
                chains[made.kind].append(Link(made, iteration.evaluation if made == iteration.policy else None))
    whole = [run.models.policy, *([run.models.critic] if run.models.critic else []), *may_return_to(run)]
    for chain in chains.values():
        for reference, keep in kept(chain, run.experiment.storage, success_of, whole).items():
            if reference != run.prepared.warm_start and run.kept.get(reference) != keep:
                default_store().prune(reference, files_to_prune(reference.kind, keep))
                run.kept[reference] = keep
