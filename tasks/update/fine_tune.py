"""Fine-tune: supervised steps on the selected trajectories and on demonstrations (AgentEvol).

See `turnwise.credit.rejection_sampling`.
"""

from __future__ import annotations

import logging

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import TRAINING, playing_code, playing_reads
from tasks.prepare.imitation import sequences_to_imitate
from tasks.restoring import MODELS, opened
from tasks.update.update import same_policy
from turnwise.agent.playing import PlayParameters
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.optimization import Evolution
from turnwise.data.trajectory_files import read_advantages, read_arrays
from turnwise.policy.learner.supervised import imitate, selected_trajectories
from turnwise.policy.model_files import POLICY
from turnwise.store import Reference, default_store

logger = logging.getLogger(__name__)


class FineTuneParameters(PlayParameters):
    """The parameters of fine-tuning. World and agent determine how demonstrations are framed."""

    learner: LearnerParameters
    evolution: Evolution
    learning_rate: float
    weight_decay: float
    maximum_gradient_norm: float
    micro_batch_tokens: int
    seed: int
    iteration: int


@task(name="fine_tune", task_run_name="{label}: fine_tune", retries=1)
@depends_on(
    kernel=(*TRAINING, "turnwise.agent.imitation", "turnwise.policy.learner.supervised"),
    writes=POLICY,
    code=playing_code,
    reads=playing_reads,
)
def fine_tune(
    parameters: FineTuneParameters,
    *,
    policy: Reference,
    start: Reference,
    rollout: Reference,
    credit: Reference,
    tokenizer: Reference,
    demonstrations: Reference,
    label: str = "fine_tune",
) -> Reference:
    """Take supervised steps from `start`; the result is the next policy with its optimizer's state.

    It learns from the trajectories with any non-zero credit, and from demonstrations. If there is no such trajectory
    and the batch is not all demonstrations, nothing is learned and the result is `policy`, which sampled the rollout.
    """
    advantages = read_advantages(default_store().folder(credit))
    rows = selected_trajectories(advantages)
    if not rows and parameters.evolution.demonstration_share < 1:
        logger.warning("iteration %d: no trajectory reached evolution.threshold", parameters.iteration)
        return same_policy(policy, parameters.learner)
    own, _ = read_arrays(opened(rollout)).select(rows).segments()
    demonstration_sequences = None
    if parameters.evolution.demonstration_share:
        demonstration_sequences = sequences_to_imitate(parameters, tokenizer, demonstrations)
    learner = MODELS.take_learner(start, parameters.learner)
    with default_store().write("policy") as draft:
        metrics = imitate(
            learner,
            own,
            demonstration_sequences,
            parameters.evolution,
            seed=parameters.seed,
            iteration=parameters.iteration,
            learning_rate=parameters.learning_rate,
            micro_batch_tokens=parameters.micro_batch_tokens,
            maximum_gradient_norm=parameters.maximum_gradient_norm,
            weight_decay=parameters.weight_decay,
        )
        learner.save(draft.folder)
        draft.metrics.update(metrics, skipped=0.0)
    MODELS.keep_learner(draft.reference, parameters.learner, learner)
    return draft.reference
