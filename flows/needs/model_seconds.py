"""The seconds that the arithmetic of a large policy adds to each stage, from its parameters and the tokens of a run.

The rough seconds of `flows.roster` are those of a policy of up to three million parameters, which waits for all but its
arithmetic. A larger one takes besides, with P parameters above these,

    2 P operations     for each token that is read or sampled
    6 P operations     for each token that is trained on

divided by what a device computes in a second. Tokens are estimated from the bounds of the section `agent`: an episode
fills a quarter of its context, and half of that is a prefix that its group shares; a reply is a quarter of the longest.
Measured on the run of docs/language-model.md (SmolLM2, 64 episodes of at most four replies of 48 tokens, one thread a
side) an iteration took 41 s to sample and 83 s to update; estimated are 52 and 110. What is measured then takes the
place of the estimate: `flows.runtime.work_left`.
"""

from __future__ import annotations

from turnwise.experiment import Experiment
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count, trained

SMALL_POLICY = 3_500_000
"""Parameters whose arithmetic the rough seconds hold already."""
OPERATIONS_PER_SECOND = {"cpu": 60e9, "cuda": 100e12}
"""Of a thread of a processor in float32, of those that a pass reaches; and of a card in bfloat16."""
FILLED_SHARE, UNSHARED_SHARE, REPLY_SHARE = 0.25, 0.5, 0.27
"""Of a context that an episode fills, of that what its group does not share, and of the longest reply that one is."""


def model_seconds(experiment: Experiment) -> dict[str, float]:
    """The seconds that a large policy adds to a call of each kind of stage; empty for a small or an unknown one."""
    dimensions = dimensions_of(experiment.policy)
    if dimensions is None or count(dimensions.shapes) <= SMALL_POLICY:
        return {}
    agent, rollout, compute = experiment.agent, experiment.rollout, experiment.compute
    every = count(dimensions.shapes)
    read = FILLED_SHARE * UNSHARED_SHARE * agent.context_tokens
    sampled = REPLY_SHARE * agent.maximum_reply_tokens * experiment.made_world.limits.turns
    each = OPERATIONS_PER_SECOND[compute.device]
    threads = (1, 1) if compute.device == "cuda" else (compute.engine_threads, compute.learner_threads)
    playing = 2 * every * (read + sampled) / (each * threads[0])
    # Of frozen weights no gradient is computed, but it goes through them.
    backward = 2 * every + 2 * trained(dimensions.shapes, experiment.optimization.adapter)
    training, scoring = ((2 * every + back) * read / (each * threads[1]) for back in (backward, 0))
    episodes, plays = rollout.prompts * rollout.group_size, 1 + experiment.evaluation.samples
    warm = experiment.warm_start
    return {
        "rollout": episodes * playing,
        "update": episodes * training * experiment.optimization.epochs,
        "reference": episodes * scoring,
        "rescore": episodes * scoring,
        "values": episodes * scoring,
        "critic": episodes * training,
        "probe": episodes * scoring,
        "evaluate": experiment.data.validation_tasks * plays * playing,
        "evaluate on test tasks": experiment.data.test_tasks * plays * playing,
        "warm_start": warm.maximum_steps * warm.batch * 6 * every * read / (each * threads[1]),
    }
