"""The engine rests while a learner or a critic computes: `compute.sleep_level`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stage_samples import Small

from tasks.restoring import MODELS
from tasks.update.critic import CriticParameters, initial_critic
from turnwise.config.model_settings import LearnerParameters
from turnwise.data.trajectory_files import read_arrays
from turnwise.policy.engines import resident
from turnwise.store import default_store


class Resting:
    """An engine that counts how often it was sent to sleep."""

    def __init__(self) -> None:
        self.rests = 0

    def sleep(self) -> None:
        self.rests += 1


def test_whoever_computes_on_the_card_lets_the_engine_rest_first(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Resting()
    monkeypatch.setattr(resident, "_resident", {("vllm", "cuda", 1, 64, 2, 2): engine})
    compute = small.experiment.compute
    parameters = LearnerParameters(compute=compute)
    sequences, _ = read_arrays(default_store().folder(small.rollout)).segments(every_reply=True)
    section = small.experiment.critic.changed(trunk="own")
    critic = initial_critic.fn(
        CriticParameters(learner=parameters, critic=section, seed=1, iteration=0), policy=small.policy
    )
    calls: list[Callable[[], object]] = [
        lambda: MODELS.keep_learner(small.policy, parameters, MODELS.take_learner(small.policy, parameters)),
        lambda: MODELS.frozen_policy(small.policy, compute),
        lambda: MODELS.reference_log_probabilities(small.policy, parameters, small.policy, sequences, 1.0, 1024),
        lambda: MODELS.keep_critic(critic, parameters, MODELS.take_critic(critic, parameters)),
    ]
    assert engine.rests == 1, "for the first critic"
    for number, call in enumerate(calls):
        before = engine.rests
        call()
        assert engine.rests > before, number
