"""Learning: from the rollout of an iteration to its advantages, and from these to the next policy and critic.

    rollout_k --values--> the critic V_k's values                   where the estimator has a critic
    rollout_k --reference--> the warm start's log-probabilities     where divergence from it is penalised
    rollout_k, these --credit--> advantages_k
    advantages_k, P_k --update--> P_(k+1)
    advantages_k, V_k --learn_values--> V_(k+1)

A critic on the policy's trunk is part of the policy's artifact and is trained in the update. While a critic warms up,
the policy is not updated.

AgentEvol learns in another way, by rejection-sampling fine-tuning (`turnwise.credit.rejection_sampling`):

    rollout_k --keep--> successes_k --fine_tune, with the demonstrations--> P_(k+1)

The functions return calls (`tasks.calls`), which `flows.train` makes and `flows.plan` looks up.
"""

from __future__ import annotations

from tasks.calls import Call, call
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
from tasks.update.fine_tune import FineTuneParameters, fine_tune
from tasks.update.rejection_sampling import KeepParameters, keep
from tasks.update.update import UpdateParameters, update
from turnwise.agent.playing import PlayParameters
from turnwise.config.model_settings import LearnerParameters
from turnwise.credit.batch import Rescored
from turnwise.credit.requirements import teacher_of
from turnwise.experiment import Experiment
from turnwise.policy.pretrained import outside_model
from turnwise.training_runs.state import Iteration, Run, play_parameters


def learner_of_policy(experiment: Experiment) -> LearnerParameters:
    """How an update loads the policy, so that what scores it is what trains it."""
    return LearnerParameters(
        compute=experiment.compute, adapter=experiment.optimization.adapter, with_critic=experiment.critic_on_trunk
    )


def first_critic(run: Run) -> Call:
    """The initial critic with a trunk of its own, before any training."""
    return call(
        initial_critic,
        lambda: _critic_parameters(run, 0),
        policy=run.prepared.warm_start,
        label=f"{run.name} before iteration 1",
    )


def value_rollout(run: Run, iteration: Iteration) -> Call:
    """The critic's values of the rollout, from before it is trained on it."""
    assert iteration.before.critic is not None, "the stage is due where there is a critic"
    experiment = run.experiment
    return call(
        values,
        lambda: ValuesParameters(
            learner=_learner_of_critic(experiment),
            micro_batch_tokens=experiment.critic.micro_batch_tokens,
            play=_privileged_play(experiment),
        ),
        critic=iteration.before.critic,
        rollout=iteration.rollout,
        tokenizer=run.prepared.tokenizer if experiment.critic.privileged else None,
        label=run.label(iteration),
    )


def score_under_warm_start(run: Run, iteration: Iteration) -> Call:
    """The log-probabilities of the rollout under the warm start, divergence from which is penalised."""
    experiment = run.experiment
    adapter = experiment.optimization.adapter
    with_critic = adapter is not None and experiment.critic_on_trunk
    return call(
        reference,
        lambda: ReferenceParameters(
            learner=LearnerParameters(compute=experiment.compute, adapter=adapter, with_critic=with_critic),
            temperature=experiment.rollout.temperature,
            micro_batch_tokens=experiment.optimization.micro_batch_tokens,
        ),
        policy=run.prepared.warm_start,
        rollout=iteration.rollout,
        adapted=None if adapter is None else iteration.before.policy,
        label=run.label(iteration),
    )


def rescore_rollout(run: Run, iteration: Iteration, need: Rescored) -> Call:
    """What a credit rule needs of the policy that sampled the rollout, or of the warm start, by token or by turn."""
    experiment = run.experiment
    teacher = teacher_of(experiment.credit) if need == "hindsight" else None
    under_warm_start = need == "start_answer_scores"
    plays = need != "score_norms" and teacher is None
    return call(
        rescore,
        lambda: RescoreParameters(
            need="answer_scores" if under_warm_start else need,
            learner=learner_of_policy(experiment),
            temperature=experiment.rollout.temperature,
            micro_batch_tokens=experiment.optimization.micro_batch_tokens,
            play=play_parameters(experiment) if plays else None,
            teacher=None if teacher is None else outside_model(teacher, key="credit.options.teacher"),
        ),
        policy=run.prepared.warm_start if under_warm_start else iteration.sampler.policy,
        rollout=iteration.rollout,
        tokenizer=run.prepared.tokenizer if need != "score_norms" else None,
        label=run.label(iteration),
    )


def credit_rollout(run: Run, iteration: Iteration) -> Call:
    """Compute the advantages of the rollout."""
    experiment = run.experiment
    penalty = experiment.optimization.reference
    in_reward = penalty is not None and penalty.place == "reward"
    in_parts = experiment.credit.thought is not None
    return call(
        credit,
        lambda: CreditParameters(
            rewards=experiment.rewards,
            credit=experiment.credit,
            reference=penalty if in_reward else None,
            format=experiment.agent.format if in_parts else None,
            branches=experiment.branches,
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


def update_policy(run: Run, iteration: Iteration) -> Call:
    """Train the policy on the batch, and the critic with it where that is on the policy's trunk."""
    experiment = run.experiment
    return call(
        update,
        lambda: update_parameters(experiment, run.seed, iteration.number),
        policy=iteration.before.policy,
        rollout=iteration.rollout,
        credit=iteration.credit,
        reference=iteration.made.get("reference") if experiment.optimization.penalty_in_loss is not None else None,
        values=iteration.made.get("values") if experiment.critic_on_trunk else None,
        sampler=iteration.sampler.policy if iteration.sampler.policy != iteration.before.policy else None,
        tokenizer=run.prepared.tokenizer if experiment.optimization.distillation is not None else None,
        label=run.label(iteration),
    )


def update_parameters(experiment: Experiment, seed: int, number: int) -> UpdateParameters:
    """The parameters of the update of iteration `number`."""
    distillation = experiment.optimization.distillation
    teacher = None if distillation is None else distillation.teacher
    return UpdateParameters.of(
        experiment.optimization,
        experiment.compute,
        experiment.rollout.temperature,
        seed,
        number,
        critic=experiment.critic if experiment.critic_on_trunk else None,
        untrained=experiment.critic.warm_up if experiment.has_critic else 0,
        play=play_parameters(experiment) if distillation is not None and teacher is None else None,
        teacher=None if teacher is None else outside_model(teacher, key="optimization.distillation.teacher"),
    )


def train_critic(run: Run, iteration: Iteration) -> Call:
    """Train the critic on the batch by itself."""
    assert iteration.before.critic is not None, "the stage is due where there is a critic"
    return call(
        learn_values,
        lambda: _critic_parameters(run, iteration.number),
        critic=iteration.before.critic,
        rollout=iteration.rollout,
        credit=iteration.credit,
        values=iteration.made["values"],
        tokenizer=run.prepared.tokenizer if run.experiment.critic.privileged else None,
        label=run.label(iteration),
    )


def keep_successes(run: Run, iteration: Iteration) -> Call:
    """Select the trajectories of the rollout to imitate."""
    experiment = run.experiment
    return call(
        keep,
        lambda: KeepParameters(
            world=experiment.world, rewards=experiment.rewards, threshold=experiment.evolution.threshold
        ),
        rollout=iteration.rollout,
        label=run.label(iteration),
    )


def imitate_successes(run: Run, iteration: Iteration) -> Call:
    """Fine-tune on the selected trajectories and on demonstrations, from this policy or from the warm start."""
    experiment, optimization, policy = run.experiment, run.experiment.optimization, iteration.before.policy
    return call(
        fine_tune,
        lambda: FineTuneParameters(
            **dict(play_parameters(experiment)),
            learner=LearnerParameters(compute=experiment.compute, adapter=optimization.adapter),
            evolution=experiment.evolution,
            learning_rate=optimization.learning_rate,
            weight_decay=optimization.weight_decay,
            maximum_gradient_norm=optimization.maximum_gradient_norm,
            micro_batch_tokens=optimization.micro_batch_tokens,
            seed=run.seed,
            iteration=iteration.number,
        ),
        policy=policy,
        start=policy if experiment.evolution.start == "policy" else run.prepared.warm_start,
        rollout=iteration.rollout,
        credit=iteration.credit,
        tokenizer=run.prepared.tokenizer,
        demonstrations=run.prepared.demonstrations,
        label=run.label(iteration),
    )


def _critic_parameters(run: Run, number: int) -> CriticParameters:
    return CriticParameters(
        learner=_learner_of_critic(run.experiment),
        critic=run.experiment.critic,
        seed=run.seed,
        iteration=number,
        play=_privileged_play(run.experiment) if number else None,
    )


def _privileged_play(experiment: Experiment) -> PlayParameters | None:
    """How episodes are played, where the critic is shown more of them than the policy."""
    return play_parameters(experiment) if experiment.critic.privileged else None


def _learner_of_critic(experiment: Experiment) -> LearnerParameters:
    """How the critic's trunk is loaded: its own, or the policy's with the settings of its training."""
    if experiment.critic_on_trunk:
        return learner_of_policy(experiment)
    return LearnerParameters(compute=experiment.compute)
