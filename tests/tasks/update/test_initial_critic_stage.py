"""The stage `initial_critic`: a critic with the policy's trunk copied, and no training."""

from __future__ import annotations

from stage_samples import Small

from tasks.update.critic import CriticParameters, initial_critic
from turnwise.config.model_settings import LearnerParameters
from turnwise.store import Reference, default_store


def made(small: Small, seed: int = 1, initial: str = "policy") -> Reference:
    parameters = CriticParameters(
        learner=LearnerParameters(compute=small.experiment.compute),
        critic=small.experiment.critic.model_copy(update={"initial": initial}),
        seed=seed,
        iteration=0,
    )
    return initial_critic.fn(parameters, policy=small.policy)


def test_it_is_an_artifact_of_its_own_that_leaves_the_policy_alone(small: Small) -> None:
    reference = made(small)
    assert reference.kind == "critic"
    default_store().verify(small.policy)
    names = [path.name for path in default_store().folder(reference).rglob("*.safetensors")]
    assert names and default_store().metrics(reference) == {}


def test_with_the_policys_weights_no_seed_matters_and_with_random_ones_it_does(small: Small) -> None:
    assert made(small, seed=1) == made(small, seed=2)
    assert len({made(small, seed=1), made(small, 1, "random"), made(small, 2, "random")}) == 3
    assert made(small, 1, "random") == made(small, 1, "random")
