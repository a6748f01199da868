"""The stage `fine_tune`: supervised steps on the policy's own successes and on demonstrations."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from stage_samples import Small, rewarded, rows

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, reference
from tasks.update.fine_tune import FineTuneParameters, fine_tune
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import CREDIT_FILE
from turnwise.store import Reference, default_store

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="rloo", options={}),
    reference=None,
)


def tuned(small: Small, rollout: Reference, **changes: Any) -> Reference:
    optimization = small.experiment.optimization
    evolution = small.experiment.evolution.model_copy(
        update={"steps": 2, "batch": 4, "demonstration_share": 0.0, **changes}
    )
    parameters = FineTuneParameters(
        **dict(small.play),
        learner=LearnerParameters(compute=small.experiment.compute),
        evolution=evolution,
        learning_rate=1e-3,
        weight_decay=0.0,
        maximum_gradient_norm=1.0,
        micro_batch_tokens=optimization.micro_batch_tokens,
        seed=1,
        iteration=1,
    )
    return fine_tune.fn(
        parameters,
        policy=small.policy,
        start=small.policy,
        rollout=rollout,
        credit=credit.fn(CREDIT, rollout=rollout),
        tokenizer=small.tokenizer,
        demonstrations=small.demonstrations,
    )


def total(small: Small, policy: Reference, rollout: Reference, episode: int) -> float:
    """The log-probability of an episode's replies."""
    parameters = ReferenceParameters(
        learner=LearnerParameters(compute=small.experiment.compute), temperature=1.0, micro_batch_tokens=1024
    )
    return sum(rows(reference.fn(parameters, policy=policy, rollout=rollout), SCORES_FILE)[episode]["per_token"])


def test_what_has_credit_becomes_more_probable(small: Small) -> None:
    # Of each group one episode earns something; rloo then gives the others credit below 0, which counts as well.
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    assert all(row["advantage"] != 0.0 for row in rows(credit.fn(CREDIT, rollout=rollout), CREDIT_FILE))
    policy = tuned(small, rollout, steps=4)
    for episode in range(6):
        assert total(small, policy, rollout, episode) > total(small, small.policy, rollout, episode)
    metrics = default_store().metrics(policy)
    assert (metrics["optimizer_steps"], metrics["skipped"]) == (4, 0.0)
    assert metrics["loss"] > 0 and metrics["gradient_norm"] > 0


def test_without_a_success_the_policy_stays_and_a_warning_says_so(
    small: Small, caplog: pytest.LogCaptureFixture
) -> None:
    rollout = rewarded(small.rollout, lambda episode: 0.0)
    with caplog.at_level(logging.WARNING):
        policy = tuned(small, rollout, demonstration_share=0.5)
    assert "iteration 1: no trajectory reached evolution.threshold" in caplog.text
    assert default_store().metrics(policy) == {"skipped": 1.0}


def test_demonstrations_alone_need_no_success(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: 0.0)
    policy = tuned(small, rollout, demonstration_share=1.0)
    assert default_store().metrics(policy)["skipped"] == 0.0
    assert tuned(small, rollout, demonstration_share=1.0) == policy
