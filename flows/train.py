"""Run: trains and tests one variant with one seed.

After an iteration guards and alarms may end the run or return it to a healthy policy, and what the section `storage`
does not keep is pruned. A run that is ended is evaluated and tested with the policy that it ended with, as after a last
iteration.

`begin`, `iterate` and `play_test_tasks` say which stages are called, in which order. `train` makes these calls;
`flows.plan` goes the same way with what is recorded.

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
from functools import partial

from flows.health import (
    early_end,
    guarded,
    judge_start,
    log_alarms,
    may_return_to,
    monitor,
    probe_policy,
    return_to_healthy,
)
from flows.learning import (
    credit_rollout,
    first_critic,
    imitate_successes,
    keep_successes,
    rescore_rollout,
    score_under_warm_start,
    train_critic,
    update_policy,
    value_rollout,
)
from flows.runtime.flow_runs import flow_run_log, untagged_tasks
from flows.runtime.sampler import Sampler
from flows.sampling import evaluation, play_greedily, roll_out, roll_out_ahead, select_groups, turn_limit
from tasks.calls import Call, Make
from tasks.orchestration.deferred import flow
from turnwise.data.outcomes import run_name
from turnwise.data.trajectory_files import success_of
from turnwise.experiment import Experiment
from turnwise.policy.models_in_memory import base_reference
from turnwise.store import default_store
from turnwise.store.retention import RetentionEntry, files_to_prune, kept, least_kept
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.state import ON_TEST_TASKS, Iteration, Models, Prepared, Run


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
    log = flow_run_log()
    run = begin(experiment, prepared, variant, seed, Call.make)
    judge_start(run)
    if on_start is not None:
        on_start(run)
    for number in range(1, experiment.optimization.iterations + 1):
        iterate(run, number, Call.make, sampler)
        log(_success_so_far(run))
        if on_iteration is not None:
            on_iteration(run, run.iterations[-1])
        log_alarms(run)
        return_to_healthy(run, Call.make)
        _prune_behind(run)
        if run.ended is not None:
            break
    if tested:
        play_test_tasks(run, Call.make)
    return run


def _success_so_far(run: Run) -> str:
    """The success of the last iteration's rollout and, where there is one, of its evaluation."""
    iteration = run.iterations[-1]
    training_success = default_store().metrics(iteration.rollout)["success"]
    line = f"iteration {iteration.number}: success {training_success:.2f} in training"
    return line if iteration.evaluation is None else f"{line}, {success_of(iteration.evaluation):.2f} in validation"


def begin(experiment: Experiment, prepared: Prepared, variant: str, seed: int, make: Make) -> Run:
    """A run before its first iteration: the warm start is evaluated, and the critic is made if there is one."""
    label, warm_start = f"{run_name(variant, seed)} before iteration 1", prepared.warm_start
    start = make(evaluation(label, experiment, "validation", prepared, warm_start))
    run = Run(variant, seed, experiment, prepared, Models(warm_start, None), start)
    if (limit := turn_limit(run, 1)) is not None:
        run.start_at_horizon = make(evaluation(label, experiment, "validation", prepared, warm_start, limit))
    if experiment.has_critic:
        critic = warm_start if experiment.critic.trunk == "policy" else make(first_critic(run))
        run.models = replace(run.models, critic=critic)
    return run


def iterate(run: Run, number: int, make: Make, sampler: Sampler | None = None) -> None:
    """One iteration: sample, credit, learn, look."""
    iteration = Iteration(number, run.models, turn_limit(run, number), earlier=run.earlier)
    experiment, artifacts = run.experiment, iteration.made
    evolves = experiment.optimization.method == "evolution"
    warms_up = experiment.has_critic and number <= experiment.critic.warm_up  # the critic alone is trained

    rollout = roll_out(run, iteration)
    if sampler is not None and experiment.rollout.lag:
        sampler.wait(rollout)
    artifacts["rollout"] = make(rollout)
    if sampler is not None and experiment.rollout.lag and number < experiment.optimization.iterations:
        sampler.begin(roll_out_ahead(run, iteration))
    if experiment.selection.rule != "all":
        artifacts["selection"] = select_groups(run, iteration, make)
    every = experiment.monitors.probe_every
    if every is not None and (number - 1) % every == 0:
        artifacts["probe"] = make(probe_policy(run, iteration))
    if experiment.has_critic:
        artifacts["values"] = make(value_rollout(run, iteration))
    if experiment.optimization.reference is not None:
        artifacts["reference"] = make(score_under_warm_start(run, iteration))
    if experiment.plays_greedily:
        artifacts["greedy"] = make(play_greedily(run, iteration))
    for need in experiment.rescored:
        artifacts[need] = make(rescore_rollout(run, iteration, need))
    artifacts["credit"] = make(keep_successes(run, iteration) if evolves else credit_rollout(run, iteration))
    with guarded(run, iteration):
        if evolves:
            artifacts["policy"] = make(imitate_successes(run, iteration))
        elif not warms_up:
            artifacts["policy"] = make(update_policy(run, iteration))
        if experiment.has_critic and (warms_up or not experiment.critic_on_trunk):
            artifacts["critic"] = make(train_critic(run, iteration))
    if number % experiment.evaluation.every == 0 or number == experiment.optimization.iterations:
        _evaluate(run, iteration, make)
    artifacts["health"] = make(monitor(run, iteration))

    run.iterations.append(iteration)
    run.models = Models(iteration.policy, iteration.critic)
    run.ended = early_end(run)
    if run.ended is not None and iteration.evaluation is None:
        _evaluate(run, iteration, make)  # its curves end there


def _evaluate(run: Run, iteration: Iteration, make: Make) -> None:
    """Evaluate the iteration's policy on the validation task set, and at training's turn limit if that is lower."""
    evaluate = partial(evaluation, run.label(iteration), run.experiment, "validation", run.prepared, iteration.policy)
    iteration.made["evaluation"] = make(evaluate())
    if iteration.limit is not None:
        iteration.made["evaluation_at_horizon"] = make(evaluate(iteration.limit))


def play_test_tasks(run: Run, make: Make) -> None:
    """Evaluate the policy that the run has ended with on the test task set, and at training's turn limit likewise."""
    evaluate = partial(evaluation, f"{run.name} {ON_TEST_TASKS}", run.experiment, "test", run.prepared, run.policy)
    run.test = make(evaluate())
    if (limit := run.iterations[-1].limit) is not None:
        run.test_at_horizon = make(evaluate(limit))


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
            link = RetentionEntry(link.reference, link.evaluation or chain.pop().evaluation)
        chain.append(link)
    whole = [run.models.policy, *([run.models.critic] if run.models.critic else []), *may_return_to(run)]
    weights = [run.earlier.policy] if run.earlier is not None else []
    if run.experiment.optimization.adapter is not None:
        base = base_reference(run.models.policy)
        weights += [] if base is None else [base]  # after a return to the warm start, the copy that was made of it
    for chain in run.chains.values():
        for reference, keep in kept(chain, storage, success_of, whole, weights).items():
            if run.retention.get(reference) != keep:
                default_store().prune(reference, files_to_prune(reference.kind, keep))
                run.retention[reference] = keep
        while chain and run.retention.get(chain[0].reference) == least_kept(chain[0], storage):
            del chain[0]


def _new_links(run: Run) -> Iterator[RetentionEntry]:
    """The policies and critics that the last iteration has made, and before those of the first the initial critic."""
    iteration = run.iterations[-1]
    before = iteration.before
    if len(run.iterations) == 1 and before.critic is not None and before.critic != before.policy:
        yield RetentionEntry(before.critic)
    for stage, artifact in iteration_stages.iteration_artifacts(iteration):
        if stage.follows and artifact != run.prepared.warm_start:
            yield RetentionEntry(artifact, iteration.evaluation if artifact == iteration.policy else None)
