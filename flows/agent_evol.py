"""AgentEvol: one iteration of rejection-sampling fine-tuning. See `turnwise.credit.rejection_sampling`.

trajectories_k --keep--> successes_k --fine-tune, with the demonstrations--> P_(k+1)
"""

from __future__ import annotations

from flows.health import guarded
from flows.run_state import Iteration, Run, play_parameters
from tasks.update.fine_tune import FineTuneParameters, fine_tune
from tasks.update.rejection_sampling import KeepParameters, keep
from turnwise.config.model_settings import LearnerParameters
from turnwise.store import Reference


def keep_successes(run: Run, iteration: Iteration) -> Reference:
    """Select the trajectories of the rollout to imitate."""
    experiment = run.experiment
    return keep(
        KeepParameters(world=experiment.world, rewards=experiment.rewards, threshold=experiment.evolution.threshold),
        rollout=iteration.rollout,
        label=run.label(iteration),
    )


def imitate_successes(run: Run, iteration: Iteration) -> Reference:
    """Fine-tune on the selected trajectories and on demonstrations, from this policy or from the warm start."""
    experiment, optimization, policy = run.experiment, run.experiment.optimization, iteration.before.policy
    with guarded(run, iteration):
        return fine_tune(
            FineTuneParameters(
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
