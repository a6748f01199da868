"""SFT warm start: supervised learning on demonstrations or conversations, only until the policy can play.

`turnwise.policy.learner.supervised` says when that is: here success is that of greedy play on the validation task set.
"""

from __future__ import annotations

import json
import shutil

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SAMPLING, TRAINING, playing_code, playing_reads
from tasks.prepare.imitation import sequences_to_imitate
from tasks.restoring import MODELS
from turnwise.agent.playing import PlayParameters, the_world
from turnwise.agent.sampling import PolicyWeights, independent, play_episodes
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.config.schema import WarmStart
from turnwise.data.metrics import episode_value
from turnwise.data.task_sets import tasks_of
from turnwise.policy.learner.supervised import train_until_success
from turnwise.policy.model_files import POLICY
from turnwise.store import Reference, default_store

CURVE_FILE = "warm_start.json"


class WarmStartParameters(PlayParameters):
    """The parameters of the warm start."""

    compute: Compute
    warm_start: WarmStart


@task(name="warm_start", task_run_name="{label}: warm_start", retries=1)
@depends_on(
    kernel=(
        *SAMPLING,
        *TRAINING,
        "turnwise.agent.imitation",
        "turnwise.data.metrics",
        "turnwise.policy.learner.supervised",
    ),
    writes=POLICY,
    code=playing_code,
    reads=playing_reads,
)
def warm_start(
    parameters: WarmStartParameters,
    *,
    policy: Reference,
    tokenizer: Reference,
    demonstrations: Reference,
    task_set: Reference,
    label: str = "preparation",
) -> Reference:
    """Train all weights of the policy; saves the policy and the curve of the training, `warm_start.json`.

    The optimizer's state is left out: reinforcement begins with a fresh one.
    """
    from turnwise.policy.learner.learner import OPTIMIZER_FILE

    sequences = sequences_to_imitate(parameters, tokenizer, demonstrations)
    learner = MODELS.take_learner(policy, LearnerParameters(compute=parameters.compute))
    with default_store().write("policy") as draft:

        def greedy_success(step: int) -> float:
            learner.save(draft.folder)
            rollout = play_episodes(
                parameters,
                parameters.compute,
                independent(tasks_of(task_set, "validation"), 1, parameters.warm_start.seed),
                # The engine knows weights by digest, which a draft does not have: so each check gets a name of its own.
                policy=PolicyWeights(draft.folder, f"{draft.folder}@{step}"),
                tokenizer=default_store().folder(tokenizer),
                temperature=0.0,
                seed=parameters.warm_start.seed,
                what="warm start: validation",
            )
            metric = the_world(parameters.world).primary_metric
            return sum(episode_value(each, metric) for each in rollout.trajectories) / len(rollout.trajectories)

        curve = train_until_success(learner, sequences, parameters.warm_start, greedy_success)
        # Its moments are those of another loss; and the policy would be three times as large.
        shutil.rmtree((draft.folder / OPTIMIZER_FILE).parent)
        (draft.folder / CURVE_FILE).write_text(json.dumps(curve, indent=1), encoding="utf-8")
        draft.metrics.update({f"warm_start_{name}": value for name, value in curve[-1].items()})
    return draft.reference
