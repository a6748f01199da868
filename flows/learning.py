"""Learning: from the rollout of an iteration to its advantages, and from these to the next policy and critic.

    rollout_k --values--> the critic V_k's values                   where the estimator has a critic
    rollout_k --reference--> the warm start's log-probabilities     where divergence from it is penalised
    rollout_k, these --credit--> advantages_k
    advantages_k, P_k --update--> P_(k+1)
    advantages_k, V_k --learn_values--> V_(k+1)

A critic on the policy's trunk is part of the policy's artifact and is trained in the update. While a critic warms up,
the policy is not updated. Rejection-sampling fine-tuning learns in another way: see `flows.agent_evol`.
"""

from __future__ import annotations

from flows.health import guarded
from flows.run_state import Iteration, Run
from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import (
    ReferenceParameters,
    RescoreParameters,
    ValuesParameters,
    reference,
    rescore,
    values,
)
from tasks.update.critic import CriticParameters, initial_critic, learn_values
from tasks.update.update import UpdateParameters, update
from turnwise.config.model_settings import LearnerParameters
from turnwise.credit.batch import Rescored
from turnwise.experiment import Experiment
from turnwise.store import Reference


def first_critic(run: Run) -> Reference | None:
    """The initial critic, before any training; None if the estimator has no critic."""
    if not run.experiment.has_critic:
        return None
    if run.experiment.critic.trunk == "policy":
        return run.prepared.warm_start
    return initial_critic(
        _critic_parameters(run, 0), policy=run.prepared.warm_start, label=f"{run.name} before iteration 1"
    )


def value_rollout(run: Run, iteration: Iteration) -> Reference:
    """The critic's values of the rollout, from before it is trained on it."""
    assert iteration.before.critic is not None, "the stage is due where there is a critic"
    parameters = ValuesParameters(
        learner=_learner_of_critic(run.experiment), micro_batch_tokens=run.experiment.critic.micro_batch_tokens
    )
    return values(parameters, critic=iteration.before.critic, rollout=iteration.rollout, label=run.label(iteration))


def score_under_warm_start(run: Run, iteration: Iteration) -> Reference:
    """The log-probabilities of the rollout under the warm start, divergence from which is penalised."""
    experiment = run.experiment
    adapter = experiment.optimization.adapter
    with_critic = adapter is not None and experiment.critic_on_trunk
    parameters = ReferenceParameters(
        learner=LearnerParameters(compute=experiment.compute, adapter=adapter, with_critic=with_critic),
        temperature=experiment.rollout.temperature,
        micro_batch_tokens=experiment.optimization.micro_batch_tokens,
    )
    return reference(
        parameters,
        policy=run.prepared.warm_start,
        rollout=iteration.rollout,
        adapted=None if adapter is None else iteration.before.policy,
        label=run.label(iteration),
    )


def rescore_rollout(run: Run, iteration: Iteration, need: Rescored) -> Reference:
    """What a credit rule needs of the policy that sampled the rollout, token by token."""
    experiment = run.experiment
    parameters = RescoreParameters(
        need=need,
        learner=_learner_of_policy(experiment),
        temperature=experiment.rollout.temperature,
        micro_batch_tokens=experiment.optimization.micro_batch_tokens,
    )
    return rescore(parameters, policy=iteration.sampler.policy, rollout=iteration.rollout, label=run.label(iteration))


def credit_rollout(run: Run, iteration: Iteration) -> Reference:
    """Compute the advantages of the rollout."""
    experiment = run.experiment
    in_reward = _penalised_in(experiment, "reward")
    in_parts = experiment.credit.thought is not None
    return credit(
        CreditParameters(
            rewards=experiment.rewards,
            credit=experiment.credit,
            reference=experiment.optimization.reference if in_reward else None,
            format=experiment.agent.format if in_parts else None,
        ),
        rollout=iteration.rollout,
        selection=iteration.made.get("selection"),
        values=iteration.made.get("values"),
        reference=iteration.made.get("reference") if in_reward else None,
        tokenizer=run.prepared.tokenizer if in_parts else None,
        greedy=iteration.made.get("greedy"),
        rescored={need: iteration.made[need] for need in experiment.rescored} or None,
        label=run.label(iteration),
    )


def update_policy(run: Run, iteration: Iteration) -> Reference:
    """Train the policy on the batch, and the critic with it where that is on the policy's trunk."""
    experiment = run.experiment
    parameters = UpdateParameters.of(
        experiment.optimization,
        experiment.compute,
        experiment.rollout.temperature,
        run.seed,
        iteration.number,
        critic=experiment.critic if experiment.critic_on_trunk else None,
        untrained=experiment.critic.warm_up if experiment.has_critic else 0,
    )
    with guarded(run, iteration):
        return update(
            parameters,
            policy=iteration.before.policy,
            rollout=iteration.rollout,
            credit=iteration.credit,
            reference=iteration.made.get("reference") if _penalised_in(experiment, "loss") else None,
            values=iteration.made.get("values") if experiment.critic_on_trunk else None,
            sampler=iteration.sampler.policy if iteration.sampler.policy != iteration.before.policy else None,
            label=run.label(iteration),
        )


def train_critic(run: Run, iteration: Iteration) -> Reference:
    """Train the critic on the batch by itself."""
    assert iteration.before.critic is not None, "the stage is due where there is a critic"
    with guarded(run, iteration):
        return learn_values(
            _critic_parameters(run, iteration.number),
            critic=iteration.before.critic,
            rollout=iteration.rollout,
            credit=iteration.credit,
            values=iteration.made["values"],
            label=run.label(iteration),
        )


def _penalised_in(experiment: Experiment, place: str) -> bool:
    """Whether divergence from the warm start is penalised in this place: the `reward` or the `loss`."""
    penalty = experiment.optimization.reference
    return penalty is not None and (penalty.place == "reward") == (place == "reward")


def _critic_parameters(run: Run, number: int) -> CriticParameters:
    return CriticParameters(
        learner=_learner_of_critic(run.experiment), critic=run.experiment.critic, seed=run.seed, iteration=number
    )


def _learner_of_policy(experiment: Experiment) -> LearnerParameters:
    """How an update loads the policy, so that what scores it is what trains it."""
    return LearnerParameters(
        compute=experiment.compute, adapter=experiment.optimization.adapter, with_critic=experiment.critic_on_trunk
    )


def _learner_of_critic(experiment: Experiment) -> LearnerParameters:
    """How the critic's trunk is loaded: its own, or the policy's with the settings of its training."""
    if experiment.critic.trunk == "own":
        return LearnerParameters(compute=experiment.compute)
    return LearnerParameters(compute=experiment.compute, adapter=experiment.optimization.adapter, with_critic=True)
