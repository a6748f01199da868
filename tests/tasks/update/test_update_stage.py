"""The stage `update`: one batch of trajectories with advantages becomes the next policy."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from stage_samples import Small, rewarded, rows

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, RescoreParameters, reference, rescore
from tasks.restoring import MODELS
from tasks.update.update import UpdateParameters, batch_of, update
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.optimization import Distillation, ImportanceCorrection
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import CREDIT_FILE, read_arrays, read_trajectories
from turnwise.errors import ConfigurationError
from turnwise.policy.learner.learner import OPTIMIZER_FILE
from turnwise.policy.pretrained import outside_model
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import Outside

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="rloo", options={}),
    reference=None,
)


def updated(small: Small, rollout: Reference, **changes: Any) -> tuple[Reference, Reference]:
    """The credit of a rollout by the small policy, and the policy after training on it."""
    credited = credit.fn(CREDIT, rollout=rollout)
    section = small.experiment.optimization.model_copy(update={"learning_rate": 1e-3, **changes})
    parameters = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1)
    return credited, update.fn(parameters, policy=small.policy, rollout=rollout, credit=credited)


def reply_scores(small: Small, policy: Reference, rollout: Reference) -> list[list[float]]:
    """The sum of a policy's log-probabilities of each reply, by episode and turn."""
    parameters = ReferenceParameters(
        learner=LearnerParameters(compute=small.experiment.compute), temperature=1.0, micro_batch_tokens=1024
    )
    found = rows(reference.fn(parameters, policy=policy, rollout=rollout), SCORES_FILE)
    sums = []
    for row, episode in zip(found, read_trajectories(default_store().folder(rollout)), strict=True):
        of_turns, end = [], 0
        for turn in episode.turns:
            end += len(turn.observation_tokens) + len(turn.reply_tokens)
            of_turns.append(sum(row["per_token"][end - len(turn.reply_tokens) : end]))
        sums.append(of_turns)
    return sums


def test_replies_with_an_advantage_above_0_become_more_probable_and_others_less(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    credited, policy = updated(small, rollout)
    before, after = (reply_scores(small, each, rollout) for each in (small.policy, policy))
    gained = sum(
        row["advantage"] * (after[row["trajectory"]][row["turn"]] - before[row["trajectory"]][row["turn"]])
        for row in rows(credited, CREDIT_FILE)
    )
    assert gained > 0
    metrics = default_store().metrics(policy)
    assert metrics["mismatch"] < 1e-4 and metrics["gradient_norm"] > 0 and metrics["skipped"] == 0.0
    trained = sum(
        len(turn.reply_tokens) for each in read_trajectories(default_store().folder(rollout)) for turn in each.turns
    )
    assert metrics["tokens"] == trained
    assert default_store().clock(policy)["trained_tokens_per_second"] > 0
    assert (default_store().folder(policy) / OPTIMIZER_FILE).is_file()


def test_the_same_batch_gives_the_same_policy_and_the_iteration_counts_only_where_batches_are_shuffled(
    small: Small,
) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    assert updated(small, rollout)[1] == updated(small, rollout)[1]
    assert updated(small, rollout, learning_rate=2e-3)[1] != updated(small, rollout)[1]


def test_a_batch_in_which_nobody_did_better_is_skipped_with_a_warning(
    small: Small, caplog: pytest.LogCaptureFixture
) -> None:
    rollout = rewarded(small.rollout, lambda episode: 1.0)
    with caplog.at_level(logging.WARNING):
        _, policy = updated(small, rollout)
    assert "iteration 1: no group has any spread of reward; the batch is skipped" in caplog.text
    assert default_store().metrics(policy) == {"skipped": 1.0}
    one, other = (load_file(default_store().folder(each) / "model.safetensors") for each in (small.policy, policy))
    assert all((one[name] == other[name]).all() for name in one)


def test_an_entropy_bonus_trains_also_where_nobody_did_better(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: 1.0)
    _, policy = updated(small, rollout, entropy_coefficient=0.1)
    assert default_store().metrics(policy)["skipped"] == 0.0


def test_an_update_on_an_older_policys_rollout_starts_from_the_newest(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    credited, newest = updated(small, rollout)
    correction = ImportanceCorrection(kind="truncate")
    section = small.experiment.optimization.model_copy(update={"learning_rate": 1e-3, "correction": correction})
    parameters = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=2)
    learned = update.fn(parameters, policy=newest, rollout=rollout, credit=credited, sampler=small.policy)
    metrics = default_store().metrics(learned)
    assert metrics["mismatch"] < 1e-4 < metrics["importance_weight_maximum"] - 1.0
    assert metrics["lag_kl"] > 0.0
    states = [load_file(default_store().folder(each) / OPTIMIZER_FILE) for each in (newest, learned)]
    steps = [max(value.item() for name, value in state.items() if name.startswith("step.")) for state in states]
    assert steps[1] == 2 * steps[0] > 0


def test_each_reply_token_meets_itself_among_those_that_its_teacher_reads(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    credited = credit.fn(CREDIT, rollout=rollout)
    section = small.experiment.optimization.model_copy(update={"distillation": Distillation()})
    parameters = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1, play=small.play)
    for chosen in (parameters, parameters.changed(sample="turn")):
        _, batch, teacher = batch_of(chosen, small.policy, rollout, credited, None, None, small.tokenizer)
        assert batch is not None and batch.teacher_rows is not None and teacher is not None
        numbers = batch.teacher_rows.values[batch.sequences.mask].astype(int)
        assert sorted(numbers) == list(range(len(numbers)))  # nobody has succeeded: all are shown their own end
        read = teacher.sequences.tokens[teacher.sequences.mask]
        assert read[numbers].tolist() == batch.sequences.tokens[batch.sequences.mask].tolist()
        sequences, _ = read_arrays(default_store().folder(rollout)).segments()
        assert len(teacher.sequences.tokens) > len(sequences.tokens)
    policy = update.fn(parameters, policy=small.policy, rollout=rollout, credit=credited, tokenizer=small.tokenizer)
    assert default_store().metrics(policy)["teacher_divergence"] > 0


def teacher_of(small: Small, folder: Path, policy: Reference) -> Outside:
    """A policy as a folder from outside, with the small policy's tokenizer."""
    for source in (policy, small.tokenizer):
        shutil.copytree(default_store().folder(source), folder, dirs_exist_ok=True)
    return outside_model(str(folder), key="optimization.distillation.teacher")


def test_a_teacher_that_is_another_policy_is_approached_and_one_that_is_the_same_teaches_nothing(
    small: Small, tmp_path: Path
) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    credited, other = updated(small, rollout, learning_rate=1e-2)

    def learned(teacher: Outside, epochs: int = 1) -> dict[str, float]:
        section = small.experiment.optimization.model_copy(
            update={"distillation": Distillation(teacher="a model"), "learning_rate": 1e-3, "epochs": epochs}
        )
        parameters = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1, teacher=teacher)
        found = update.fn(parameters, policy=small.policy, rollout=rollout, credit=credited, tokenizer=small.tokenizer)
        return default_store().metrics(found)

    same = learned(teacher_of(small, tmp_path / "same", small.policy))
    teacher = teacher_of(small, tmp_path / "other", other)
    before = learned(teacher)
    assert same["teacher_divergence"] == pytest.approx(0.0, abs=1e-6)
    assert same["gradient_norm"] < 1e-2 * before["gradient_norm"]  # what rounding leaves
    assert learned(teacher, epochs=3)["teacher_divergence"] < before["teacher_divergence"]  # a mean over epochs


def test_a_teacher_scores_what_the_policy_has_sampled(small: Small, tmp_path: Path) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    other = updated(small, rollout, learning_rate=1e-2)[1]
    parameters = RescoreParameters(
        need="hindsight",
        learner=LearnerParameters(compute=small.experiment.compute),
        temperature=1.0,
        micro_batch_tokens=1024,
        teacher=teacher_of(small, tmp_path / "other", other),
    )
    found = rescore.fn(parameters, policy=small.policy, rollout=rollout, tokenizer=small.tokenizer)
    gains = [sum(row["per_token"]) for row in rows(found, SCORES_FILE)]
    after = reply_scores(small, other, rollout)
    sampled = [
        sum(sum(turn.log_probabilities) for turn in each.turns)
        for each in read_trajectories(default_store().folder(rollout))
    ]
    assert gains == pytest.approx([sum(one) - two for one, two in zip(after, sampled, strict=True)], abs=1e-4)


def test_a_teacher_with_other_tokens_is_refused(small: Small, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\b1024\b.*base-1m.*TW-foreign-tokenizer"):
        MODELS.teacher_policy(outside_model("base-1m"), small.tokenizer, small.experiment.compute)
