"""Learning: from the rollout of an iteration to its advantages, and from these to the next policy and critic.

    rollout_k --values--> the critic V_k's values                   where the estimator has a critic
    rollout_k --reference--> the warm start's log-probabilities     where divergence from it is penalised
    rollout_k, these --credit--> advantages_k
    advantages_k, P_k --update--> P_(k+1)
    advantages_k, V_k --learn_values--> V_(k+1)

A critic on the policy's trunk is part of the policy's artifact and is trained in the update. While a critic warms up,
the policy is not updated.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.health import guarded
from flows.prepare import Prepared
from flows.run_state import Run
from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, ValuesParameters, reference, values
from tasks.models_in_memory import LearnerParameters
from tasks.update.critic import CriticParameters, initial_critic, learn_values
from tasks.update.update import UpdateParameters, update
from turnwise.experiment import Experiment
from turnwise.store import Reference


@dataclass(frozen=True)
class LearningBatch:
    """The artifacts that an iteration learns from."""

    rollout: Reference
    credit: Reference
    values: Reference | None
    """The critic's values of the rollout, from before it was trained on it."""
    reference: Reference | None
    """The reference policy's log-probabilities, if divergence from it is penalised in the loss."""


@dataclass(frozen=True)
class Learned:
    """The policy and critic after an iteration."""

    policy: Reference
    critic: Reference | None
    updated: Reference | None
    """The policy if an update made it; None while a critic warms up."""


def first_critic(run: Run, prepared: Prepared) -> Reference | None:
    """The initial critic, before any training; None if the estimator has no critic."""
    if not run.experiment.has_critic:
        return None
    if run.experiment.critic.trunk == "policy":
        return prepared.warm_start
    return initial_critic.named(f"{run.name} before iteration 1")(
        _critic_parameters(run, 0), policy=prepared.warm_start
    )


def credited(
    run: Run,
    number: int,
    prepared: Prepared,
    rollout: Reference,
    selection: Reference | None,
    critic: Reference | None,
) -> LearningBatch:
    """Compute the credit of a rollout; the result includes the scores that the update needs."""
    experiment, label = run.experiment, f"{run.name} iteration {number}"
    valued = _value(label, experiment, critic, rollout)
    scored = _score_reference(label, experiment, prepared, rollout)
    penalty = experiment.optimization.reference
    in_reward = penalty is not None and penalty.place == "reward"
    in_parts = experiment.credit.thought is not None
    given = credit.named(label)(
        CreditParameters(
            rewards=experiment.rewards,
            credit=experiment.credit,
            reference=penalty if in_reward else None,
            format=experiment.agent.format if in_parts else None,
        ),
        rollout=rollout,
        selection=selection,
        values=valued,
        reference=scored if in_reward else None,
        tokenizer=prepared.tokenizer if in_parts else None,
    )
    return LearningBatch(rollout, given, valued, None if in_reward else scored)


def learn(run: Run, number: int, policy: Reference, critic: Reference | None, batch: LearningBatch) -> Learned:
    """Train the policy and the critic on a batch."""
    with guarded(run, number, policy):
        warming_up = critic is not None and number <= run.experiment.critic.warm_up
        updated = None if warming_up else _update(run, number, policy, batch)
        if critic is None:
            return Learned(updated or policy, None, updated)
        if run.experiment.critic.trunk == "policy":
            both = updated or _learn_values(run, number, critic, batch)
            return Learned(both, both, updated)
        return Learned(updated or policy, _learn_values(run, number, critic, batch), updated)


def _learn_values(run: Run, number: int, critic: Reference, batch: LearningBatch) -> Reference:
    assert batch.values is not None, "a critic values a rollout before it learns from it"
    return learn_values.named(f"{run.name} iteration {number}")(
        _critic_parameters(run, number),
        critic=critic,
        rollout=batch.rollout,
        credit=batch.credit,
        values=batch.values,
    )


def _update(run: Run, number: int, policy: Reference, batch: LearningBatch) -> Reference:
    experiment = run.experiment
    parameters = UpdateParameters.of(
        experiment.optimization,
        experiment.compute,
        experiment.rollout.temperature,
        run.seed,
        number,
        critic=experiment.critic if experiment.critic_on_trunk else None,
    )
    return update.named(f"{run.name} iteration {number}")(
        parameters,
        policy=policy,
        rollout=batch.rollout,
        credit=batch.credit,
        reference=batch.reference,
        values=batch.values if experiment.critic_on_trunk else None,
    )


def _critic_parameters(run: Run, number: int) -> CriticParameters:
    return CriticParameters(
        learner=_learner_of_critic(run.experiment), critic=run.experiment.critic, seed=run.seed, iteration=number
    )


def _learner_of_critic(experiment: Experiment) -> LearnerParameters:
    """How the critic's trunk is loaded: its own, or the policy's with the settings of its training."""
    if experiment.critic.trunk == "own":
        return LearnerParameters(compute=experiment.compute)
    return LearnerParameters(compute=experiment.compute, adapter=experiment.optimization.adapter, with_critic=True)


def _value(label: str, experiment: Experiment, critic: Reference | None, sampled: Reference) -> Reference | None:
    """The critic's values of the rollout; None without a critic."""
    if critic is None:
        return None
    parameters = ValuesParameters(
        learner=_learner_of_critic(experiment), micro_batch_tokens=experiment.critic.micro_batch_tokens
    )
    return values.named(label)(parameters, critic=critic, rollout=sampled)


def _score_reference(label: str, experiment: Experiment, prepared: Prepared, sampled: Reference) -> Reference | None:
    """The warm start's log-probabilities of the rollout; None if divergence from it is not penalised."""
    if experiment.optimization.reference is None:
        return None
    parameters = ReferenceParameters(
        compute=experiment.compute,
        temperature=experiment.rollout.temperature,
        micro_batch_tokens=experiment.optimization.micro_batch_tokens,
    )
    return reference.named(label)(parameters, policy=prepared.warm_start, rollout=sampled)
