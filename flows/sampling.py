"""Sampling: the rollouts of an iteration, the selection of their groups, and the evaluations of a policy.

P_k --rollout--> trajectories_k --select--> groups_k
P_(k+1) --evaluate--> at the world's turn limit and, where training has a shorter limit, at that one too

With `rollout.lag` trajectories_(k+1) are sampled with P_k too, while it is updated to P_(k+1). Which policy samples,
and at which turn limit, is then known as soon as trajectories_k are there; `flows.runtime.sampler` samples them in a
process of its own.

The functions return calls (`tasks.calls`), which `flows.train` makes and `flows.plan` looks up.
"""

from __future__ import annotations

from tasks.calls import Call, Make, Unrecorded, call
from tasks.credit.select import SelectParameters, read_choice, select
from tasks.health.health import read_health
from tasks.rollout.evaluate import EvaluationParameters, evaluate
from tasks.rollout.rollout import GatherParameters, RolloutParameters, gather, rollout
from turnwise.credit.selection import MAXIMUM_ROUNDS
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.training_runs.state import GREEDILY, Iteration, Prepared, Run, play_parameters
from turnwise.world import Split


def turn_limit(run: Run, number: int) -> int | None:
    """The turn limit of an iteration; None if the world's own is as short.

    It is set by the iteration before or, with a lag, by the one before that: the last whose results are known when
    sampling begins.
    """
    latest = number - 1 - run.experiment.rollout.lag
    if latest <= 0 or isinstance(run.iterations[latest - 1].health, Unrecorded):
        return run.experiment.first_turn_limit(number)
    return run.experiment.below_the_worlds(read_health(run.iterations[latest - 1].health).horizon.limit)


def roll_out(run: Run, iteration: Iteration, round: int = 0) -> Call:
    """Sample the groups of trajectories of an iteration with its behaviour policy. Each round plays other tasks."""
    return _rollout(run, iteration.number, iteration.limit, iteration.sampler.policy, round)


def roll_out_ahead(run: Run, iteration: Iteration) -> Call:
    """Sample those of the next iteration with the policy that this one updates (`rollout.lag`)."""
    next_number = iteration.number + 1
    return _rollout(run, next_number, turn_limit(run, next_number), iteration.before.policy)


def play_greedily(run: Run, iteration: Iteration) -> Call:
    """One greedy episode of each task of the iteration's rollout, in the world of the group's first episode."""
    return _rollout(run, iteration.number, iteration.limit, iteration.sampler.policy, greedy=True)


def _rollout(
    run: Run, number: int, limit: int | None, policy: Reference, round: int = 0, *, greedy: bool = False
) -> Call:
    experiment = run.experiment
    suffix = GREEDILY if greedy else f" round {round + 1}" if round else ""
    return call(
        rollout,
        lambda: RolloutParameters(
            **dict(play_parameters(experiment)),
            compute=experiment.compute,
            scheme=experiment.rollout.scheme,
            prompts=experiment.rollout.prompts,
            group_size=1 if greedy else experiment.rollout.group_size,
            branches=experiment.branches,
            temperature=0.0 if greedy else experiment.rollout.temperature,
            horizon=limit,
            seed=run.seed,
            iteration=number,
            round=round,
        ),
        policy=policy,
        tokenizer=run.prepared.tokenizer,
        task_set=run.prepared.train_task_set,
        label=f"{run.name} iteration {number}{suffix}",
    )


def select_groups(run: Run, iteration: Iteration, make: Make) -> Reference:
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
    selection = make(call(select, lambda: parameters, rollout=iteration.rollout, label=label))
    while not isinstance(selection, Unrecorded) and read_choice(selection).missing and len(rounds) < most:
        rounds.append(make(roll_out(run, iteration, len(rounds))))
        iteration.made["rollout"] = make(call(gather, GatherParameters, rollouts=list(rounds), label=label))
        selection = make(call(select, lambda: parameters, rollout=iteration.rollout, label=label))
    return selection


def evaluation(
    label: str,
    experiment: Experiment,
    split: Split,
    prepared: Prepared,
    policy: Reference,
    limit: int | None = None,
) -> Call:
    """Evaluate a policy on a task set; `limit`: a turn limit below the world's own, as of training."""
    return call(
        evaluate,
        lambda: EvaluationParameters.of(
            play_parameters(experiment), experiment.compute, experiment.evaluation, split, limit
        ),
        policy=policy,
        tokenizer=prepared.tokenizer,
        task_set=prepared.task_set(split),
        label=label if limit is None else f"{label}, {limit} turns",
    )
