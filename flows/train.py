"""Run: trains and tests one variant with one seed.

An iteration runs the stages of the roster that are due in it (`flows.roster`). After it, guards and alarms may end the
run or return it to a healthy policy, and what the section `storage` does not keep is pruned. A run that is ended is
evaluated and tested with the policy that it ended with, as after a last iteration.

With P_n the policy that has learned from n batches, P_0 the warm start, and `rollout.lag`:

    lag    rollout n is sampled by    its turn limit is set after    update n
    0      P_(n-1)                    iteration n - 1                P_(n-1) -> P_n
    1      P_(n-2), P_0 for n = 1     iteration n - 2                P_(n-1) -> P_n, corrected for the lag

so that with a lag rollout n + 1 can be sampled while update n goes on. All other stages read the newest policy and
critic: values, probes, evaluations. A healthy iteration is one whose rollout is, so a return is to the policy that
sampled it; that policy samples the next rollout too, and what was sampled ahead is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from prefect import flow

from flows import roster
from flows.agent_evol import imitate_successes, keep_successes
from flows.health import early_end, judge_start, may_return_to, monitor, probe_policy, respond
from flows.learning import (
    credit_rollout,
    first_critic,
    rescore_rollout,
    score_under_warm_start,
    train_critic,
    update_policy,
    value_rollout,
)
from flows.run_state import ON_TEST_TASKS, Iteration, Models, Prepared, Run
from flows.runtime.flow_runs import untagged_tasks
from flows.runtime.sampler import Sampler
from flows.sampling import (
    evaluate_policy,
    evaluate_policy_at_horizon,
    evaluation,
    evaluation_at_horizon,
    play_greedily,
    roll_out,
    select_groups,
    turn_limit,
)
from tasks.models_in_memory import base_reference
from turnwise.data.evaluations import success_of
from turnwise.experiment import Experiment
from turnwise.store import default_store
from turnwise.store.retention import Link, files_to_prune, kept, least_kept


@flow(name="train", flow_run_name="{variant} seed {seed}", validate_parameters=False, persist_result=False)
@untagged_tasks
def train(
    experiment: Experiment,
    prepared: Prepared,
    variant: str,
    seed: int,
    on_iteration: Callable[[Run, Iteration], None] | None = None,
    sampler: Sampler | None = None,
    on_start: Callable[[Run], None] | None = None,
    tested: bool = True,
) -> Run:
    """Train and test one variant with one seed. `experiment` is the variant's own configuration.

    `on_start` is called when the warm start was evaluated and nothing was trained yet, `on_iteration` after each
    iteration.

    `sampler` makes rollouts while this process updates policies, where `rollout.lag` allows it. Results do not depend
    on it.

    Without `tested` no test task is played, and `test` of the run is None.

    Raises:
        TrainingEnded: a fault ends the run, so that nothing can be concluded from it.
    """
    run = _begin(experiment, prepared, variant, seed)
    run.sampler = sampler
    judge_start(run)
    if on_start is not None:
        on_start(run)
    for number in range(1, experiment.optimization.iterations + 1):
        iteration = _iterate(run, number)
        run.iterations.append(iteration)
        run.models = Models(iteration.policy, iteration.critic)
        run.ended = early_end(run)
        if run.ended is not None and iteration.evaluation is None:
            _evaluate(run, iteration)  # its curves end there
        if on_iteration is not None:
            on_iteration(run, iteration)
        respond(run)
        _prune_behind(run)
        if run.ended is not None:
            break
    if tested:
        label, limit = f"{run.name} {ON_TEST_TASKS}", run.iterations[-1].limit
        run.test = evaluation(label, experiment, "test", prepared, run.policy)
        run.test_at_horizon = evaluation_at_horizon(label, experiment, "test", prepared, run.policy, limit)
    return run


def _begin(experiment: Experiment, prepared: Prepared, variant: str, seed: int) -> Run:
    """A run before its first iteration: the warm start is evaluated, and the critic is made if there is one."""
    label = f"{variant} seed {seed} before iteration 1"
    start = evaluation(label, experiment, "validation", prepared, prepared.warm_start)
    run = Run(variant, seed, experiment, prepared, Models(prepared.warm_start, None), start)
    run.start_at_horizon = evaluation_at_horizon(
        label, experiment, "validation", prepared, prepared.warm_start, turn_limit(run, 1)
    )
    run.models = replace(run.models, critic=first_critic(run))
    return run


def _iterate(run: Run, number: int) -> Iteration:
    """Run the stages of one iteration that are due."""
    iteration = Iteration(number, run.models, turn_limit(run, number), earlier=run.earlier)
    made, due = iteration.made, {stage.name for stage in roster.due(run.experiment, number)}
    made["rollout"] = roll_out(run, iteration)
    if "selection" in due:
        made["selection"] = select_groups(run, iteration)
    if "probe" in due:
        made["probe"] = probe_policy(run, iteration)
    if "values" in due:
        made["values"] = value_rollout(run, iteration)
    if "reference" in due:
        made["reference"] = score_under_warm_start(run, iteration)
    if "greedy" in due:
        made["greedy"] = play_greedily(run, iteration)
    for need in run.experiment.rescored:
        made[need] = rescore_rollout(run, iteration, need)
    if run.experiment.optimization.method == "evolution":
        made["credit"] = keep_successes(run, iteration)
        made["policy"] = imitate_successes(run, iteration)
    else:
        made["credit"] = credit_rollout(run, iteration)
        if "policy" in due:
            made["policy"] = update_policy(run, iteration)
    if "critic" in due:
        made["critic"] = train_critic(run, iteration)
    if "evaluation" in due:
        _evaluate(run, iteration)
    made["health"] = monitor(run, iteration)
    return iteration


def _evaluate(run: Run, iteration: Iteration) -> None:
    """Evaluate the iteration's policy on the validation task set, and at training's turn limit if that is lower."""
    iteration.made["evaluation"] = evaluate_policy(run, iteration)
    at_horizon = evaluate_policy_at_horizon(run, iteration)
    if at_horizon is not None:
        iteration.made["evaluation_at_horizon"] = at_horizon


def _prune_behind(run: Run) -> None:
    """Prune what the section `storage` does not keep of the run's policies and critics.

    What other runs start from too, what the next iteration starts from, and what an alarm may return to are never
    touched; of the policy that samples the next iteration, and of the one that an adapter belongs to, the weights stay.
    If another run still needs a pruned policy that both have made, it is recomputed on request. Links of which the
    least is kept already are not looked at again, so that late iterations cost what early ones do.
    """
    storage = run.experiment.storage
    for link in _new_links(run):
        chain = run.chains.setdefault(link.reference.kind, [])
        if chain and chain[-1].reference == link.reference:  # an update was skipped
            link = Link(link.reference, link.evaluation or chain.pop().evaluation)
        chain.append(link)
    whole = [run.models.policy, *([run.models.critic] if run.models.critic else []), *may_return_to(run)]
    weights = [run.earlier.policy] if run.earlier is not None else []
    if run.experiment.optimization.adapter is not None:
        base = base_reference(run.models.policy)
        weights += [] if base is None else [base]  # after a return to the warm start, the copy that was made of it
    for chain in run.chains.values():
        for reference, keep in kept(chain, storage, success_of, whole, weights).items():
            if run.kept.get(reference) != keep:
                default_store().prune(reference, files_to_prune(reference.kind, keep))
                run.kept[reference] = keep
        while chain and run.kept.get(chain[0].reference) == least_kept(chain[0], storage):
            del chain[0]


def _new_links(run: Run) -> Iterator[Link]:
    """The policies and critics that the last iteration has made, and before those of the first the initial critic."""
    iteration = run.iterations[-1]
    begun = iteration.before
    if len(run.iterations) == 1 and begun.critic is not None and begun.critic != begun.policy:
        yield Link(begun.critic)
    for stage, made in roster.made_in(iteration):
        if stage.follows and made != run.prepared.warm_start:
            yield Link(made, iteration.evaluation if made == iteration.policy else None)
