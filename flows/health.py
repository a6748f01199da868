"""Monitoring of a run: probes, bookkeeping, alarms and guards. They read what the run has made and change nothing,
except where an alarm or a guard is configured to end the run or to return it to an earlier policy.

    evaluation of the warm start --> a warning where reinforcement would have nothing to begin with
    rollout_k --probe--> probe_k         every few iterations, before the update
    rollout_k, credit_k, P_(k+1), probe_k, health_(k-1) --health--> health_k
    health_k, P_h --return_to--> P'_(k+1)    where the response is to go back to the healthy P_h
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flows.learning import learner_of_policy
from tasks.calls import Call, Make, Unrecorded, call
from tasks.health.health import (
    HealthParameters,
    ProbeParameters,
    ReturnParameters,
    health,
    probe,
    read_health,
    return_to,
)
from turnwise.credit import estimator_of
from turnwise.data.outcomes import EarlyEnd
from turnwise.data.trajectory_files import SAMPLED, read_evaluation
from turnwise.errors import MismatchError, NotFiniteError, TrainingEnded
from turnwise.experiment import Experiment
from turnwise.health.alarms import AlarmRecord, Change
from turnwise.health.guards import message, reached_guard
from turnwise.health.initial_signal import InitialSignal, initial_signal
from turnwise.store import Reference
from turnwise.training_runs.state import Iteration, Models, Run, changed

logger = logging.getLogger(__name__)


def judge_start(run: Run) -> None:
    """Set and log the run's warning if its reinforcement has no beginning, at the turn limit of its first iteration.

    All seeds of a variant start alike, so it is logged for the first of them alone.
    """
    signal = signal_at_start(run.experiment, run.start_at_horizon or run.start)
    run.start_warning = "" if signal is None else signal.warning()
    if run.start_warning and run.seed == run.experiment.ablation.all_seeds[0]:
        logger.warning("before iteration 1 of %s: %s", run.variant, run.start_warning)


def signal_at_start(experiment: Experiment, evaluation: Reference) -> InitialSignal | None:
    """What a variant could learn from at first, by an evaluation of the policy that its reinforcement starts from.

    None where no sampled episode came to its end.
    """
    trajectories = read_evaluation(evaluation, SAMPLED)
    if not trajectories:
        return None
    # Rejection-sampling fine-tuning imitates the best of all episodes.
    grouped = experiment.optimization.method == "reinforcement" and estimator_of(experiment.credit.estimator).grouped
    return initial_signal(trajectories, experiment.rewards, experiment.rollout, grouped=grouped)


def probe_policy(run: Run, iteration: Iteration) -> Call:
    """Measure the rollout with models, before the policy is updated."""
    experiment = run.experiment
    return call(
        probe,
        lambda: ProbeParameters(
            learner=learner_of_policy(experiment),
            temperature=experiment.rollout.temperature,
            micro_batch_tokens=experiment.optimization.micro_batch_tokens,
            sample=experiment.monitors.probe_sample,
            seed=run.seed,
            iteration=iteration.number,
        ),
        policy=iteration.before.policy,
        warm_start=run.prepared.warm_start,
        rollout=iteration.rollout,
        tokenizer=run.prepared.tokenizer,
        label=run.label(iteration),
    )


def monitor(run: Run, iteration: Iteration) -> Call:
    """Compute the iteration's monitors, judge them by the alarm rules, and set the next turn limit."""
    experiment, alarms = run.experiment, run.experiment.alarms
    return call(
        health,
        lambda: HealthParameters(
            iteration=iteration.number,
            rewards=experiment.rewards,
            start=experiment.monitors.start,
            window=experiment.monitors.window,
            n_gram=experiment.monitors.n_gram,
            rules={name: rule for name, rule in alarms.rules.items() if rule is not None},
            response=alarms.response,
            maximum_returns=alarms.maximum_returns,
            change=Change(
                learning_rate=experiment.optimization.learning_rate * alarms.learning_rate_factor,
                selection=alarms.selection or experiment.selection,
            ),
            curriculum=experiment.curriculum,
            turns=experiment.made_world.limits.turns,
            prompts=experiment.rollout.prompts if experiment.rollout.scheme == "branching" else None,
            lag=experiment.rollout.lag,
            limit=(iteration.limit or experiment.made_world.limits.turns) if experiment.rollout.lag else None,
            added=experiment.monitors.added,
        ),
        rollout=iteration.rollout,
        credit=iteration.credit,
        tokenizer=run.prepared.tokenizer,
        policy=iteration.made.get("policy"),
        probe=iteration.made.get("probe"),
        previous=run.iterations[-1].health if run.iterations else None,
        label=run.label(iteration),
    )


def early_end(run: Run) -> EarlyEnd | None:
    """How a guard or an alarm ends the run after its last iteration so far; None where it goes on."""
    iteration = run.iterations[-1]
    if isinstance(iteration.health, Unrecorded):
        return None
    record, planned = read_health(iteration.health), run.experiment.optimization.iterations
    guard = reached_guard(record.in_a_row, run.experiment.guards)
    if guard is not None:
        count = record.in_a_row[guard]
        good = run.sampler_of(iteration.number - count).policy
        evidence = f"its condition held in the last {count} iterations of {run.name}, up to {iteration.number}"
        reason = message(guard, evidence, str(good))
        return EarlyEnd(iteration=iteration.number, planned=planned, cause="guard", by=(guard,), message=reason)
    if record.alarm.response == "stop":
        by, reason = tuple(record.alarm.raised), _stop_message(run, record.alarm)
        return EarlyEnd(iteration=iteration.number, planned=planned, cause="alarm", by=by, message=reason)
    return None


def log_alarms(run: Run) -> None:
    """Log the alarms of the run's last iteration, and what they or a guard do to the run."""
    iteration = run.iterations[-1]
    alarm = read_health(iteration.health).alarm
    for words in alarm.raised.values():
        logger.warning("%s: alarm: %s", run.label(iteration), words)
    if run.ended is not None:
        logger.warning("%s. The policy that it ended with is tested, and counts like any other", run.ended.message)
    elif alarm.response == "return":
        assert alarm.change is not None, "a return changes something"
        logger.warning(
            "%s goes back to the policy that sampled iteration %d, with learning rate %g and selection %s",
            run.name,
            alarm.healthy,
            alarm.change.learning_rate,
            alarm.change.selection.rule,
        )


def return_to_healthy(run: Run, make: Make) -> None:
    """Return the run to its last healthy policy if an alarm of its last iteration asks for that.

    The run then goes on from that policy, and its experiment has the changed settings from now on.
    """
    iteration = run.iterations[-1]
    if run.ended is not None or isinstance(iteration.health, Unrecorded):
        return
    alarm = read_health(iteration.health).alarm
    if alarm.response != "return":
        return
    assert alarm.change is not None, "a return changes something"
    run.experiment = changed(run.experiment, alarm.change)
    healthy = run.sampler_of(alarm.healthy)
    iteration.made["returned"] = returned = make(
        call(return_to, ReturnParameters, policy=healthy.policy, health=iteration.health, label=run.label(iteration))
    )
    run.models = Models(returned, returned if run.experiment.critic_on_trunk else healthy.critic)


def may_return_to(run: Run) -> list[Reference]:
    """The policy and the critic that an alarm in the next iteration could return to; empty if alarms do not return."""
    if run.experiment.alarms.response != "return":
        return []
    healthy = run.sampler_of(read_health(run.iterations[-1].health).alarm.healthy)
    return [healthy.policy, *([] if healthy.critic is None else [healthy.critic])]


@contextmanager
def guarded(run: Run, iteration: Iteration) -> Iterator[None]:
    """Leave the run out, with advice, if the learner refuses to update; the policy before is named as the last good.

    Raises:
        TrainingEnded: what was sampled or learned cannot be trusted.
    """
    try:
        yield
    except (MismatchError, NotFiniteError) as error:
        name = "mismatch" if isinstance(error, MismatchError) else "not_finite"
        evidence = f"in the update of {run.label(iteration)} {error.message.rstrip('.')}"
        raise TrainingEnded(message(name, evidence, str(iteration.before.policy)), error.code, name) from error


def _stop_message(run: Run, alarm: AlarmRecord) -> str:
    evidence = "; ".join(alarm.raised.values())
    returns = f" after {alarm.returns} returns" if alarm.returns else ""
    return (
        f"monitors must stay within the bounds of alarms.rules; {run.name} was stopped at iteration "
        f"{alarm.iteration}{returns}: {evidence}. The last healthy policy, {run.sampler_of(alarm.healthy).policy}, "
        f"sampled iteration {alarm.healthy}. What may help: a lower optimization.learning_rate, selection.rule: "
        "uncertainty, wider clips; alarms.response: log goes on all the same"
    )
