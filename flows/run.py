"""Run: trains one variant with one seed, iteration by iteration.

P_k --rollout--> trajectories_k --select--> groups_k --learn--> P_(k+1)

Every n iterations there is an evaluation at the world's turn limit and, where training has a shorter limit, at that one
too. The curriculum sets the turn limit of iteration k + 1 from trajectories_k. How a policy learns from trajectories is
in `flows.learning` and, for rejection-sampling fine-tuning, in `flows.agent_evol`.
"""

from __future__ import annotations

from collections.abc import Callable

from flows.agent_evol import evolve
from flows.health import may_return_to, probe_policy, respond, watch
from flows.learning import credited, first_critic, learn
from flows.prepare import Prepared, play_parameters
from flows.retention import prune_behind
from flows.run_state import Iteration, Run
from tasks.credit.select import SelectParameters, read_missing, select
from tasks.health.health import read_health
from tasks.rollout.evaluate import EvaluationParameters, evaluate
from tasks.rollout.rollout import GatherParameters, RolloutParameters, gather, rollout
from turnwise.credit.selection import MAXIMUM_ROUNDS
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.world import Split


def run_variant(
    experiment: Experiment,
    prepared: Prepared,
    variant: str,
    seed: int,
    on_iteration: Callable[[Run, Iteration], None] = lambda run, iteration: None,
) -> Run:
    """Train and test one variant with one seed. `experiment` is the variant's own configuration."""
    label = f"{variant} seed {seed} before iteration 1"
    limit = horizon_at(experiment, None)
    full, at_horizon = _evaluate(label, experiment, "validation", prepared, prepared.warm_start, limit)
    run = Run(variant, seed, experiment, full, at_horizon)
    policy, critic, before = prepared.warm_start, first_critic(run, prepared), None
    run.critic = critic
    for number in range(1, experiment.optimization.iterations + 1):
        limit = horizon_at(experiment, before)
        iteration = _iterate(run, number, prepared, policy, critic, before)
        run.iterations.append(iteration)
        on_iteration(run, iteration)
        respond(run, prepared)
        prune_behind(run.chains, experiment.storage, [prepared.warm_start], may_return_to(run), run.kept)
        last = run.iterations[-1]
        policy, critic, before = last.successor, last.critic, last.health
    label = f"{run.name} on the test panel"
    run.test, run.test_at_horizon = _evaluate(label, experiment, "test", prepared, policy, limit)
    return run


def _iterate(
    run: Run,
    number: int,
    prepared: Prepared,
    policy: Reference,
    critic: Reference | None,
    before: Reference | None,
) -> Iteration:
    """Run one iteration. `before` is the health record of the previous one."""
    experiment, label = run.experiment, f"{run.name} iteration {number}"
    limit = horizon_at(experiment, before)
    sampled, selection = _sample(run, number, prepared, policy, limit)
    probed = probe_policy(run, number, prepared, policy, sampled)
    if experiment.optimization.method == "evolution":
        batch, learned = evolve(run, number, prepared, policy, sampled)
    else:
        batch = credited(run, number, prepared, sampled, selection, critic)
        learned = learn(run, number, policy, critic, batch)
    due = number % experiment.evaluation.every == 0 or number == experiment.optimization.iterations
    full, at_horizon = (
        _evaluate(label, experiment, "validation", prepared, learned.policy, limit) if due else (None, None)
    )
    health = watch(run, number, prepared, rollout=sampled, credit=batch.credit, updated=learned.updated, probed=probed)
    return Iteration(
        number=number,
        rollout=sampled,
        credit=batch.credit,
        policy=learned.policy,
        health=health,
        evaluation=full,
        evaluation_at_horizon=at_horizon,
        selection=selection,
        critic=learned.critic,
        probe=probed,
    )


def horizon_at(experiment: Experiment, before: Reference | None) -> int | None:
    """The turn limit after the health record `before` (None: at the start); None if the world's own is as short."""
    limit = experiment.made_curriculum.first().limit if before is None else read_health(before).horizon.limit
    return limit if limit < experiment.made_world.limits.turns else None


def _sample(
    run: Run, number: int, prepared: Prepared, policy: Reference, limit: int | None
) -> tuple[Reference, Reference | None]:
    """Sample a rollout and select its groups (None: all groups are kept).

    While groups are missing, further rounds are sampled, up to a cap. If groups are still missing then, the batch is
    smaller, as the selection's metrics show.
    """
    section = run.experiment.selection
    label = f"{run.name} iteration {number}"
    rounds = [_roll_out(run, number, prepared, policy, limit, 0)]
    if section.rule == "all":
        return rounds[0], None
    parameters = SelectParameters(
        rewards=run.experiment.rewards,
        selection=section,
        wanted=run.experiment.rollout.prompts,
        seed=run.seed,
        iteration=number,
    )
    most = section.options.get("maximum_rounds", MAXIMUM_ROUNDS)
    sampled, selection = rounds[0], select.named(label)(parameters, rollout=rounds[0])
    while read_missing(selection) and len(rounds) < most:
        rounds.append(_roll_out(run, number, prepared, policy, limit, len(rounds)))
        sampled = gather.named(label)(GatherParameters(), rollouts=list(rounds))
        selection = select.named(label)(parameters, rollout=sampled)
    return sampled, selection


def _roll_out(run: Run, number: int, prepared: Prepared, policy: Reference, limit: int | None, round: int) -> Reference:
    experiment = run.experiment
    again = f" round {round + 1}" if round else ""
    return rollout.named(f"{run.name} iteration {number}{again}")(
        RolloutParameters(
            **dict(play_parameters(experiment)),
            compute=experiment.compute,
            scheme=experiment.rollout.scheme,
            prompts=experiment.rollout.prompts,
            group_size=experiment.rollout.group_size,
            temperature=experiment.rollout.temperature,
            horizon=limit,
            seed=run.seed,
            iteration=number,
            round=round,
        ),
        policy=policy,
        tokenizer=prepared.tokenizer,
        panel=prepared.train_panel,
    )


def _evaluate(
    label: str, experiment: Experiment, split: Split, prepared: Prepared, policy: Reference, limit: int | None
) -> tuple[Reference, Reference | None]:
    """Evaluate a policy at the world's turn limit, and at the training limit where that is shorter (else None)."""

    def at(horizon: int | None, label: str) -> Reference:
        return evaluate.named(label)(
            EvaluationParameters.of(
                play_parameters(experiment), experiment.compute, experiment.evaluation, split, horizon
            ),
            policy=policy,
            tokenizer=prepared.tokenizer,
            panel=prepared.panel(split),
        )

    return at(None, label), None if limit is None else at(limit, f"{label}, {limit} turns")
