"""The stage `update` over two processes: its policy is that of one process, which goes on from it. One that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
import torch
from safetensors.torch import load_file
from stage_samples import Small, rewarded

from tasks.credit.credit import CreditParameters, credit
from tasks.restoring import MODELS
from tasks.update.update import UpdateParameters, update
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.trajectory import TokenSequence
from turnwise.errors import LearnerLost
from turnwise.policy.learner.learner import OPTIMIZER_FILE
from turnwise.policy.model import WEIGHTS_FILE
from turnwise.store import Reference, default_store

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="rloo", options={}),
    reference=None,
)


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    MODELS.forget()


def test_a_policy_goes_from_two_processes_to_one_and_back(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    credited = credit.fn(CREDIT, rollout=rollout)
    section = small.experiment.optimization.model_copy(update={"learning_rate": 1e-4, "maximum_mismatch": 10.0})

    def trained(policy: Reference, processes: int, iteration: int) -> Reference:
        compute = small.experiment.compute.model_copy(update={"learner_processes": processes})
        parameters = UpdateParameters.of(section, compute, 1.0, seed=1, iteration=iteration)
        return update.fn(parameters, policy=policy, rollout=rollout, credit=credited)

    made = {}
    for name, numbers in {"one": (1, 1, 1), "mixed": (2, 1, 2)}.items():
        policy = small.policy
        for iteration, processes in enumerate(numbers, start=1):
            policy = trained(policy, processes, iteration)
        made[name] = default_store().folder(policy)
    assert default_store().metrics(policy)["optimizer_steps"] == section.epochs * section.mini_batches
    for file, bound in ((WEIGHTS_FILE, 1e-6), (OPTIMIZER_FILE, 1e-4)):
        expected, found = (load_file(made[name] / file) for name in ("one", "mixed"))
        assert expected.keys() == found.keys()
        difference = torch.cat([(found[each] - expected[each]).flatten() for each in expected])
        assert difference.norm() / torch.cat([each.flatten() for each in expected.values()]).norm() < bound


def test_a_process_that_dies_ends_all_with_one_sentence(small: Small) -> None:
    """Those of the test above, as long as they live: it takes seconds to start others."""
    two = MODELS.learner_processes(small.experiment.compute.model_copy(update={"learner_processes": 2}))
    learner, ids = two.make("learner", default_store().folder(small.policy), threads=1), two.process_ids
    os.kill(ids[1], signal.SIGKILL)
    sequences = [TokenSequence((3, 4, 5, 6), (-1, -1, 0, 0), (0.0,) * 4)] * 2
    with pytest.raises(LearnerLost, match=r"(?s)\b1\b.*SIGKILL.*TW-learner-lost"):
        learner.supervised_step(sequences, learning_rate=1e-3, micro_batch_tokens=40)
    assert not two.alive and not any(psutil.pid_exists(each) for each in ids)
