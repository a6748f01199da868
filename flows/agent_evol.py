"""AgentEvol: one iteration of rejection-sampling fine-tuning. See `turnwise.credit.rejection_sampling`.

trajectories_k --keep--> successes_k --fine-tune, with the demonstrations--> P_(k+1)
"""

from __future__ import annotations

from flows.health import guarded
from flows.learning import Learned, LearningBatch
from flows.prepare import Prepared, play_parameters
from flows.run_state import Run
from tasks.models_in_memory import LearnerParameters
from tasks.update.fine_tune import FineTuneParameters, fine_tune
from tasks.update.rejection_sampling import KeepParameters, keep
from turnwise.store import Reference


def evolve(
    run: Run, number: int, prepared: Prepared, policy: Reference, sampled: Reference
) -> tuple[LearningBatch, Learned]:
    """Select the trajectories of a rollout to imitate and fine-tune on them; returns the batch and the next policy."""
    experiment, label = run.experiment, f"{run.name} iteration {number}"
    optimization = experiment.optimization
    kept = keep.named(label)(
        KeepParameters(world=experiment.world, rewards=experiment.rewards, threshold=experiment.evolution.threshold),
        rollout=sampled,
    )
    with guarded(run, number, policy):
        learned = fine_tune.named(label)(
            FineTuneParameters(
                **dict(play_parameters(experiment)),
                learner=LearnerParameters(compute=experiment.compute, adapter=optimization.adapter),
                evolution=experiment.evolution,
                learning_rate=optimization.learning_rate,
                weight_decay=optimization.weight_decay,
                maximum_gradient_norm=optimization.maximum_gradient_norm,
                micro_batch_tokens=optimization.micro_batch_tokens,
                seed=run.seed,
                iteration=number,
            ),
            policy=policy,
            start=policy if experiment.evolution.start == "policy" else prepared.warm_start,
            rollout=sampled,
            credit=kept,
            tokenizer=prepared.tokenizer,
            demonstrations=prepared.demonstrations,
        )
    return LearningBatch(sampled, kept, None, None), Learned(learned, None, learned)
