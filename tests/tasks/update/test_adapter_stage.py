"""An adapter's policy: what an update keeps of it, and who makes a whole policy of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage_samples import Small, rewarded, rolled_out, rows
from transformers import AutoModelForCausalLM

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, reference
from tasks.restoring import MODELS
from tasks.update.update import UpdateParameters, update
from turnwise.config.model_settings import Adapter, LearnerParameters
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import read_trajectories
from turnwise.policy.adapter import ADAPTER_FILE, base_name, has_adapter
from turnwise.policy.engines.resident import close_resident_engine
from turnwise.policy.learner.learner import OPTIMIZER_FILE
from turnwise.policy.models_in_memory import base_reference
from turnwise.policy.publication import export_policy
from turnwise.store import MANIFEST, Reference, default_store

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="rloo", options={}),
    reference=None,
)


def updated(small: Small, policy: Reference, *, pays: float = 1.0) -> Reference:
    """The policy after an update of its adapter; with `pays` 0 no episode is better than another."""
    paid = rewarded(small.rollout, lambda episode: pays * episode.replica)
    changes = {"learning_rate": 0.05, "adapter": Adapter(rank=2, alpha=4), "maximum_mismatch": 100.0}
    section = small.experiment.optimization.model_copy(update=changes)
    parameters = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1)
    made: Reference = update.fn(parameters, policy=policy, rollout=paid, credit=credit.fn(CREDIT, rollout=paid))
    return made


def forget() -> None:
    """As in a process that has just begun."""
    MODELS.forget()
    close_resident_engine()


def test_every_update_keeps_the_adapter_alone_and_names_what_it_belongs_to(small: Small) -> None:
    first = updated(small, small.policy)
    for policy in (first, updated(small, first)):
        folder = default_store().folder(policy)
        weights = {path.relative_to(folder).as_posix() for path in folder.rglob("*.safetensors")}
        assert weights == {ADAPTER_FILE, OPTIMIZER_FILE}
        assert base_name(folder) == small.policy.digest
        assert MODELS.base_of(folder) == default_store().folder(small.policy)
        assert base_reference(policy) == small.policy
    assert MODELS.base_of(default_store().folder(small.policy)) is None and base_reference(small.policy) is None


def test_a_rollout_is_the_same_to_the_bit_from_memory_and_from_the_store(small: Small) -> None:
    trained = updated(small, small.policy)
    from_memory = rolled_out(small, trained)
    forget()
    assert rolled_out(small, trained) == from_memory != rolled_out(small, small.policy)


def test_training_goes_on_to_the_bit_from_the_store(small: Small) -> None:
    first = updated(small, small.policy)
    second = updated(small, first)
    forget()
    assert updated(small, first) == second


def test_a_batch_without_a_signal_begins_the_adapter_and_copies_no_weights(small: Small) -> None:
    skipped = updated(small, small.policy, pays=0.0)
    folder = default_store().folder(skipped)
    assert default_store().metrics(skipped) == {"skipped": 1.0}
    assert has_adapter(folder) and base_name(folder) == small.policy.digest
    again = updated(small, skipped, pays=0.0)
    assert again == skipped, "an adapter that is there is kept as it is"
    assert base_name(default_store().folder(updated(small, skipped))) == small.policy.digest


def test_who_needs_all_weights_gets_them_merged(small: Small, tmp_path: Path) -> None:
    trained = updated(small, small.policy)
    learner = LearnerParameters(compute=small.experiment.compute)
    parameters = ReferenceParameters(learner=learner, temperature=1.0, micro_batch_tokens=1024)
    sampled = rolled_out(small, trained)
    scored = rows(reference.fn(parameters, policy=trained, rollout=sampled), SCORES_FILE)
    for row, episode in zip(scored, read_trajectories(default_store().folder(sampled)), strict=True):
        recorded = [value for turn in episode.turns for value in turn.log_probabilities]
        assert [value for value in row["per_token"] if value != 0.0] == pytest.approx(recorded, abs=1e-5)
    with MODELS.whole_policy(trained) as folder:
        export_policy(folder, default_store().folder(small.tokenizer), tmp_path, temperature=1.0)
    assert not folder.exists() and not (tmp_path / MANIFEST).exists()
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() > 0
