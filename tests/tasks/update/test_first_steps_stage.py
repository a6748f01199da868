"""The stage `first_steps`: updates of one policy compared, without a next policy."""

from __future__ import annotations

import numpy as np
import pytest
from stage_samples import Small, rewarded

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, read_scores, reference
from tasks.update.first_steps import FirstSteps, FirstStepsParameters, first_steps, read_first_steps
from tasks.update.update import UpdateParameters, update
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.trajectory_files import read_arrays
from turnwise.store import Reference, default_store


def credited(rollout: Reference, weight: float) -> Reference:
    rewards = {"goal": RewardSection(level="outcome", weight=weight)}
    return credit.fn(
        CreditParameters(rewards=rewards, credit=Credit(estimator="rloo", options={}), reference=None), rollout=rollout
    )


def of_update(small: Small, **changes: object) -> UpdateParameters:
    section = small.experiment.optimization.model_copy(update={"learning_rate": 1e-3, "mini_batches": 1, **changes})
    return UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1)


def compared(small: Small, rollout: Reference, weights: dict[str, float], *, taken: bool = True) -> FirstSteps:
    made = first_steps.fn(
        FirstStepsParameters(updates={name: of_update(small) for name in weights}, taken=taken),
        policy=small.policy,
        rollout=rollout,
        credits={name: credited(rollout, weight) for name, weight in weights.items()},
    )
    return read_first_steps(made)


def test_gradients_that_are_the_same_opposite_or_scaled_have_the_cosines_and_norms_that_they_must(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    found = compared(small, rollout, {"one": 1.0, "same": 1.0, "opposite": -1.0, "half": 0.5}, taken=False)
    assert found.cosines == pytest.approx({"same": 1.0, "opposite": -1.0, "half": 1.0}, abs=1e-6)
    norms = {name: metrics["gradient_norm"] for name, metrics in found.metrics.items() if metrics is not None}
    assert norms == pytest.approx({name: norms["one"] * (0.5 if name == "half" else 1) for name in norms}, rel=1e-4)


def test_the_step_is_the_updates_and_its_kl_is_that_of_the_policy_which_the_update_makes(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    found = compared(small, rollout, {"one": 1.0, "other": 2.0}).metrics["one"]
    policy = update.fn(of_update(small), policy=small.policy, rollout=rollout, credit=credited(rollout, 1.0))
    assert found is not None
    assert found["gradient_norm"] == pytest.approx(default_store().metrics(policy)["gradient_norm"], rel=1e-5)
    sequences, _ = read_arrays(default_store().folder(rollout)).segments(every_reply=True)
    parameters = ReferenceParameters(
        learner=LearnerParameters(compute=small.experiment.compute), temperature=1.0, micro_batch_tokens=1024
    )
    after = read_scores(reference.fn(parameters, policy=policy, rollout=rollout)).per_token.values
    moved = (after - sequences.log_probabilities)[sequences.mask]
    assert found["approximate_kl"] == pytest.approx(float(np.mean(np.exp(moved) - 1 - moved)), rel=1e-3)
    assert found["approximate_kl"] > 0


def test_without_the_optimizers_state_no_step_is_taken_and_without_spread_there_is_no_gradient(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    not_taken = compared(small, rollout, {"one": 1.0, "other": 2.0}, taken=False).metrics["one"]
    assert not_taken is not None and not_taken.keys() == {"gradient_norm", "loss", "entropy"}
    alike = rewarded(small.rollout, lambda episode: 1.0)
    assert compared(small, alike, {"one": 1.0, "other": 2.0}) == FirstSteps(
        {"one": None, "other": None}, {"other": None}
    )
