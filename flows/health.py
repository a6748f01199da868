"""Monitoring of a run: monitors, alarms and guards. They read what the run has made and change nothing, except where
an alarm or a guard is configured to stop the run or to return it to an earlier policy.

    rollout_k --probe--> probe_k         every few iterations, before the update
    rollout_k, credit_k, P_(k+1), probe_k, health_(k-1) --health--> health_k
    health_k, P_h --return_to--> P'_(k+1)    where the response is to go back to the healthy P_h
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from flows.prepare import Prepared
from flows.run_state import Iteration, Run
from tasks.health.health import HealthParameters, ReturnParameters, health, read_health, return_to
from tasks.health.probe import ProbeParameters, probe
from tasks.models_in_memory import LearnerParameters
from turnwise.errors import MismatchError, NotFiniteError, TrainingEnded
from turnwise.experiment import Experiment
from turnwise.health.alarms import AlarmRecord, Change
from turnwise.health.guards import COUNTED, in_a_row, message
from turnwise.store import Reference

logger = logging.getLogger(__name__)


def probe_policy(run: Run, number: int, prepared: Prepared, policy: Reference, rollout: Reference) -> Reference | None:
    """Probe the rollout with models, in the first iteration and every `probe_every` after it; None in the others."""
    experiment = run.experiment
    every = experiment.monitors.probe_every
    if every is None or (number - 1) % every:
        return None
    parameters = ProbeParameters(
        learner=LearnerParameters(
            compute=experiment.compute,
            adapter=experiment.optimization.adapter,
            with_critic=experiment.critic_on_trunk,
        ),
        temperature=experiment.rollout.temperature,
        micro_batch_tokens=experiment.optimization.micro_batch_tokens,
        sample=experiment.monitors.probe_sample,
        seed=run.seed,
        iteration=number,
    )
    return probe.named(f"{run.name} iteration {number}")(
        parameters, policy=policy, warm_start=prepared.warm_start, rollout=rollout, tokenizer=prepared.tokenizer
    )


def watch(
    run: Run,
    number: int,
    prepared: Prepared,
    *,
    rollout: Reference,
    credit: Reference,
    updated: Reference | None,
    probed: Reference | None,
) -> Reference:
    """Compute an iteration's monitors, judge them, and set the next turn limit.

    `updated` is the result of the update, if there was one.
    """
    experiment, alarms = run.experiment, run.experiment.alarms
    return health.named(f"{run.name} iteration {number}")(
        HealthParameters(
            iteration=number,
            rewards=experiment.rewards,
            start=experiment.monitors.start,
            window=experiment.monitors.window,
            n_gram=experiment.monitors.n_gram,
            rules={name: rule for name, rule in alarms.rules.items() if rule is not None},
            response=alarms.response,
            maximum_returns=alarms.maximum_returns,
            change=_change(experiment),
            curriculum=experiment.curriculum,
            turns=experiment.made_world.limits.turns,
            prompts=experiment.rollout.prompts if experiment.rollout.scheme == "branching" else None,
        ),
        rollout=rollout,
        credit=credit,
        tokenizer=prepared.tokenizer,
        policy=updated,
        probe=probed,
        previous=run.iterations[-1].health if run.iterations else None,
    )


def respond(run: Run, prepared: Prepared) -> None:
    """Apply the guards and the alarm of the run's last iteration, once that iteration is recorded.

    If an alarm returns the run to a healthy policy, the iteration is marked with that policy, and the run's experiment
    has the changed settings from now on.

    Raises:
        TrainingEnded: a guard or an alarm ends the run.
    """
    iteration = run.iterations[-1]
    _guard(run, prepared, iteration.health)
    judgement = read_health(iteration.health).alarm
    for words in judgement.raised.values():
        logger.warning("%s iteration %d: alarm: %s", run.name, iteration.number, words)
    if judgement.response == "stop":
        raise TrainingEnded(_stopped(run, prepared, judgement))
    if judgement.response == "return":
        _go_back(run, prepared, iteration, judgement)


def _go_back(run: Run, prepared: Prepared, iteration: Iteration, judgement: AlarmRecord) -> None:
    """Continue from the last healthy policy, and the critic of that iteration, with the alarm's changed settings."""
    assert judgement.change is not None, "a return changes something"
    run.experiment = changed(run.experiment, judgement.change)
    logger.warning(
        "%s goes back to the policy that sampled iteration %d, with learning rate %g and selection %s",
        run.name,
        judgement.healthy,
        judgement.change.learning_rate,
        judgement.change.selection.rule,
    )
    healthy = sampler(run, prepared, judgement.healthy)
    policy = return_to.named(f"{run.name} iteration {iteration.number}")(
        ReturnParameters(), policy=healthy, health=iteration.health
    )
    critic = _critic_before(run, judgement.healthy)
    run.iterations[-1] = replace(
        iteration, returned=policy, critic=policy if run.experiment.critic_on_trunk else critic
    )


def may_return_to(run: Run) -> list[Reference]:
    """The policy and the critic that an alarm in the next iteration could return to; empty if alarms do not return."""
    if run.experiment.alarms.response != "return":
        return []
    healthy = read_health(run.iterations[-1].health).alarm.healthy
    critic = _critic_before(run, healthy)
    return [*([run.iterations[healthy - 2].successor] if healthy > 1 else []), *([critic] if critic else [])]


def _critic_before(run: Run, number: int) -> Reference | None:
    """The critic at the start of an iteration; for iteration 0 the initial critic."""
    return run.iterations[number - 2].critic if number > 1 else run.critic


def changed(experiment: Experiment, change: Change) -> Experiment:
    """The experiment with the settings that apply after a return."""
    optimization = experiment.optimization.model_copy(update={"learning_rate": change.learning_rate})
    return experiment.model_copy(update={"optimization": optimization, "selection": change.selection})


@contextmanager
def guarded(run: Run, number: int, policy: Reference) -> Iterator[None]:
    """End the run with advice if the learner refuses to update; `policy` is named as the last good one."""
    try:
        yield
    except (MismatchError, NotFiniteError) as error:
        name = "mismatch" if isinstance(error, MismatchError) else "not_finite"
        seen = f"in the update of {run.name} iteration {number} {str(error).rstrip('.')}"
        raise TrainingEnded(message(name, seen, str(policy))) from error


def sampler(run: Run, prepared: Prepared, number: int) -> Reference:
    """The behaviour policy of an iteration; for iteration 0 the warm start."""
    return run.iterations[number - 2].successor if number > 1 else prepared.warm_start


def _change(experiment: Experiment) -> Change:
    """The settings that a return would apply."""
    alarms = experiment.alarms
    return Change(
        learning_rate=experiment.optimization.learning_rate * alarms.learning_rate_factor,
        selection=alarms.selection or experiment.selection,
    )


def _guard(run: Run, prepared: Prepared, health: Reference) -> None:
    """Raise TrainingEnded if a guard's condition has held for too many iterations in a row."""
    history = read_health(health).monitors
    for name in COUNTED:
        most, count = getattr(run.experiment.guards, name), in_a_row(name, history)
        if most is not None and count >= most:
            good = sampler(run, prepared, len(history) - count)
            seen = f"its condition held in the last {count} iterations of {run.name}, up to {len(history)}"
            raise TrainingEnded(message(name, seen, str(good)))


def _stopped(run: Run, prepared: Prepared, judgement: AlarmRecord) -> str:
    seen = "; ".join(judgement.raised.values())
    again = f" after {judgement.returns} returns" if judgement.returns else ""
    return (
        f"monitors must stay within the bounds of alarms.rules; {run.name} was stopped at iteration "
        f"{judgement.iteration}{again}: {seen}. The last healthy policy, {sampler(run, prepared, judgement.healthy)}, "
        f"sampled iteration {judgement.healthy}. What may help: a lower optimization.learning_rate, selection.rule: "
        "uncertainty, wider clips; alarms.response: log goes on all the same"
    )
