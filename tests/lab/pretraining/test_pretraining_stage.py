"""The stage `pretraining`: steps in several stages are the steps of one, and they lower the loss."""

from __future__ import annotations

from pretraining_samples import small_corpus
from stage_samples import Small

from lab.pretraining.configuration import Phase, PretrainingSteps
from lab.pretraining.corpus import RECALLS, REPETITIONS
from lab.pretraining.pretrain import PretrainingParameters, pretraining
from tasks.restoring import MODELS
from turnwise.config.model_settings import LearnerParameters
from turnwise.store import Reference, default_store


def steps(small: Small, policy: Reference, corpus: Reference, first: int, count: int) -> Reference:
    training = PretrainingSteps(
        phases=[Phase(steps=2, batch=6, sources=[RECALLS]), Phase(steps=6, batch=6, sources=None)],
        steps_per_stage=count,
        learning_rate_warmup=2,
        final_learning_rate=1e-4,
        weight_decay=0.1,
        micro_batch_tokens=512,
        threads=1,
    )
    return pretraining.fn(
        PretrainingParameters(
            seed=0,
            compute=small.experiment.compute,
            training=training,
            learning_rate=0.01,
            weights={"lake": 2.0, RECALLS: 1.0, REPETITIONS: 1.0},
            first_step=first,
        ),
        policy=policy,
        corpus=corpus,
    )


def test_the_loss_falls_and_the_optimizer_goes_on_from_stage_to_stage(small: Small) -> None:
    made = small_corpus(small)
    first = steps(small, small.policy, made, 1, 4)
    second = steps(small, first, made, 5, 4)
    store = default_store()
    assert store.metrics(second)["loss"] < store.metrics(first)["loss"]
    assert store.metrics(second)["steps"] == 8
    assert MODELS.take_learner(second, LearnerParameters(compute=small.experiment.compute)).steps == 8


def test_a_stage_that_begins_from_the_stored_policy_gives_the_same_policy(small: Small) -> None:
    made = small_corpus(small)
    first = steps(small, small.policy, made, 1, 4)
    in_memory = steps(small, first, made, 5, 4)
    steps(small, small.policy, made, 1, 2)  # another policy takes the learner's place in memory
    assert steps(small, first, made, 5, 4) == in_memory


def test_a_step_draws_from_the_sources_of_its_phase() -> None:
    first, second = Phase(steps=3, batch=2, sources=["lake"]), Phase(steps=1, batch=4, sources=None)
    training = PretrainingSteps(
        phases=[first, second],
        steps_per_stage=2,
        learning_rate_warmup=0,
        final_learning_rate=0.0,
        weight_decay=0.0,
        micro_batch_tokens=64,
        threads=1,
    )
    assert training.steps == 4
    assert [training.phase_of(step) for step in (1, 2, 3, 4)] == [first, first, first, second]
