"""Sampling: the rollouts of an iteration, the selection of their groups, and the evaluations of a policy.

P_k --rollout--> trajectories_k --select--> groups_k
P_(k+1) --evaluate--> at the world's turn limit and, where training has a shorter limit, at that one too
"""

from __future__ import annotations

from flows.prepare import Prepared, play_parameters
from flows.run_state import Iteration, Run
from tasks.credit.select import SelectParameters, read_missing, select
from tasks.rollout.evaluate import EvaluationParameters, evaluate
from tasks.rollout.rollout import GatherParameters, RolloutParameters, gather, rollout
from turnwise.credit.selection import MAXIMUM_ROUNDS
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.world import Split


def roll_out(run: Run, iteration: Iteration, round: int = 0) -> Reference:
    """Sample groups of trajectories with the behaviour policy. Each round plays other tasks."""
    experiment = run.experiment
    again = f" round {round + 1}" if round else ""
    return rollout.named(f"{run.label(iteration)}{again}")(
        RolloutParameters(
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
        policy=iteration.before.policy,
        tokenizer=run.prepared.tokenizer,
        panel=run.prepared.train_panel,
    )


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
    selection = select.named(label)(parameters, rollout=iteration.rollout)
    while read_missing(selection) and len(rounds) < most:
        rounds.append(roll_out(run, iteration, len(rounds)))
        iteration.made["rollout"] = gather.named(label)(GatherParameters(), rollouts=list(rounds))
        selection = select.named(label)(parameters, rollout=iteration.rollout)
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
    return evaluate.named(label)(
        EvaluationParameters.of(play_parameters(experiment), experiment.compute, experiment.evaluation, split, limit),
        policy=policy,
        tokenizer=prepared.tokenizer,
        panel=prepared.panel(split),
    )


def evaluation_at_horizon(
    label: str, experiment: Experiment, split: Split, prepared: Prepared, policy: Reference, limit: int | None
) -> Reference | None:
    """Evaluate a policy at the turn limit of training; None where that is the world's."""
    if limit is None:
        return None
    return evaluation(f"{label}, {limit} turns", experiment, split, prepared, policy, limit)
