"""Sampling: the rollouts of an iteration, the selection of their groups, and the evaluations of a policy.

P_k --rollout--> trajectories_k --select--> groups_k
P_(k+1) --evaluate--> at the world's turn limit and, where training has a shorter limit, at that one too

With `rollout.lag` trajectories_(k+1) are sampled with P_k too, while it is updated to P_(k+1). Which policy samples,
and at which turn limit, is then known as soon as trajectories_k are there; `flows.runtime.sampler` samples them in a
process of its own.
"""

from __future__ import annotations

from flows.run_state import Iteration, Prepared, Run, play_parameters
from flows.runtime.sampler import RolloutCall
from tasks.credit.select import SelectParameters, read_missing, select
from tasks.health.record import read_health
from tasks.rollout.evaluate import EvaluationParameters, evaluate
from tasks.rollout.rollout import GatherParameters, RolloutParameters, gather
from turnwise.credit.selection import MAXIMUM_ROUNDS
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.world import Split


def roll_out(run: Run, iteration: Iteration) -> Reference:
    """Sample the groups of trajectories of an iteration, and with a lag begin to sample those of the next one."""
    call = rollout_call(run, iteration)
    if run.sampler is None or not run.experiment.rollout.lag:
        return call.make()
    run.sampler.wait(call)
    made = call.make()
    following = iteration.number + 1
    if following <= run.experiment.optimization.iterations:
        run.sampler.begin(rollout_call(run, Iteration(following, iteration.before, turn_limit(run, following))))
    return made


def turn_limit(run: Run, number: int) -> int | None:
    """The turn limit of an iteration; None if the world's own is as short.

    It is set by the iteration before or, with a lag, by the one before that: the last whose results are known when
    sampling begins.
    """
    known = number - 1 - run.experiment.rollout.lag
    if known <= 0:
        return run.experiment.first_turn_limit(number)
    return run.experiment.below_the_worlds(read_health(run.iterations[known - 1].health).horizon.limit)


def rollout_call(run: Run, iteration: Iteration, round: int = 0) -> RolloutCall:
    """The sampling of an iteration with its behaviour policy. Each round plays other tasks."""
    experiment = run.experiment
    again = f" round {round + 1}" if round else ""
    return RolloutCall(
        label=f"{run.label(iteration)}{again}",
        parameters=RolloutParameters(
            **dict(play_parameters(experiment)),
            compute=experiment.compute,
            scheme=experiment.rollout.scheme,
            prompts=experiment.rollout.prompts,
            group_size=experiment.rollout.group_size,
            temperature=experiment.rollout.temperature,
            horizon=iteration.limit,
            seed=run.seed,
            iteration=iteration.number,
            round=round,
        ),
        policy=iteration.sampler.policy,
        tokenizer=run.prepared.tokenizer,
        task_set=run.prepared.train_task_set,
    )


def play_greedily(run: Run, iteration: Iteration) -> Reference:
    """One greedy episode of each task of the iteration's rollout, in the world of the group's first episode."""
    call = rollout_call(run, iteration)
    parameters = call.parameters.changed(group_size=1, temperature=0.0)
    return call.model_copy(update={"label": f"{call.label} greedy", "parameters": parameters}).make()


def select_groups(run: Run, iteration: Iteration) -> Reference:
    """Select the groups to learn from.

    While groups are missing, further rounds are sampled and added to the iteration's rollout, up to a cap. If groups
    are still missing then, the batch is smaller, as the selection's metrics show.
    """
    section, label = run.experiment.selection, run.label(iteration)
    parameters = SelectParameters(
        rewards=run.experiment.rewards,
        selection=section,
        wanted=run.experiment.rollout.prompts,
        seed=run.seed,
        iteration=iteration.number,
    )
    most = section.options.get("maximum_rounds", MAXIMUM_ROUNDS)
    rounds = [iteration.rollout]
    selection = select(parameters, rollout=iteration.rollout, label=label)
    while read_missing(selection) and len(rounds) < most:
        rounds.append(rollout_call(run, iteration, len(rounds)).make())
        iteration.made["rollout"] = gather(GatherParameters(), rollouts=list(rounds), label=label)
        selection = select(parameters, rollout=iteration.rollout, label=label)
    return selection


def evaluate_policy(run: Run, iteration: Iteration) -> Reference:
    """Evaluate the iteration's policy on the validation task set, at the world's turn limit."""
    return evaluation(run.label(iteration), run.experiment, "validation", run.prepared, iteration.policy)


def evaluate_policy_at_horizon(run: Run, iteration: Iteration) -> Reference | None:
    """The same at the turn limit of training; None where that is the world's."""
    return evaluation_at_horizon(
        run.label(iteration), run.experiment, "validation", run.prepared, iteration.policy, iteration.limit
    )


def evaluation(
    label: str,
    experiment: Experiment,
    split: Split,
    prepared: Prepared,
    policy: Reference,
    limit: int | None = None,
) -> Reference:
    """Evaluate a policy on a task set; `limit`: a turn limit below the world's own."""
    return evaluate(
        EvaluationParameters.of(play_parameters(experiment), experiment.compute, experiment.evaluation, split, limit),
        policy=policy,
        tokenizer=prepared.tokenizer,
        task_set=prepared.task_set(split),
        label=label,
    )


def evaluation_at_horizon(
    label: str, experiment: Experiment, split: Split, prepared: Prepared, policy: Reference, limit: int | None
) -> Reference | None:
    """Evaluate a policy at the turn limit of training; None where that is the world's."""
    if limit is None:
        return None
    return evaluation(f"{label}, {limit} turns", experiment, split, prepared, policy, limit)
