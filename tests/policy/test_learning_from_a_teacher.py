"""Distillation: the divergence from a teacher over the whole vocabulary, and its gradient in an update."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gradient_samples import gradients_of_first_step, loaded_learner, precise_learner, relative_difference
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import two_turn_sequences

from turnwise.config.optimization import Distillation
from turnwise.data.arrays import SequenceBatch
from turnwise.policy.learner.distillation import Teacher, vocabulary_divergence
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

MakePolicy = Callable[..., Path]
SETTINGS = UpdateSettings(
    learning_rate=1e-2, temperature=0.75, micro_batch_tokens=60, maximum_mismatch=100.0, maximum_gradient_norm=1e9
)
SHOWN = (7, 8, 9)
"""Tokens that the teacher reads before everything else."""


def learns_by(weight: float = 1.0, interpolation: float = 1.0, **further: Any) -> UpdateSettings:
    return SETTINGS.changed(distillation=Distillation(weight=weight, interpolation=interpolation), **further)


def a_lesson(*, unshown: int = 1) -> tuple[UpdateBatch, SequenceBatch]:
    """Six sequences, and what the teacher reads of all but the first `unshown`: the same after `SHOWN`."""
    sequences = two_turn_sequences()
    shown = [
        dataclasses.replace(
            each,
            tokens=(*SHOWN, *each.tokens),
            turn_of_token=(*(-1 for _ in SHOWN), *each.turn_of_token),
            log_probabilities=(*(0.0 for _ in SHOWN), *each.log_probabilities),
        )
        for each in sequences[unshown:]
    ]
    batch = UpdateBatch.from_turns(sequences, [(1.0, -0.5)] * len(sequences))
    counts = batch.sequences.reply_counts
    known = int(counts[unshown:].sum())
    rows = batch.sequences.at_replies(np.concatenate([np.full(counts[:unshown].sum(), -1.0), np.arange(known)]))
    return dataclasses.replace(batch, teacher_rows=rows), SequenceBatch.of(shown)


@pytest.mark.parametrize(
    ("interpolation", "expected"),
    [
        (1.0, 0.5 * math.log(4 / 3)),  # KL(p || q)
        (0.0, 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2)),  # KL(q || p)
        # m = (3/8, 5/8): half of KL(q || m) and half of KL(p || m)
        (0.5, (0.25 * math.log(2 / 3) + 0.75 * math.log(6 / 5) + 0.5 * math.log(4 / 3) + 0.5 * math.log(4 / 5)) / 2),
        # m = (7/16, 9/16): a quarter of KL(q || m), three quarters of KL(p || m)
        (
            0.25,
            (0.25 * math.log(4 / 7) + 0.75 * math.log(4 / 3)) / 4
            + 3 * (0.5 * math.log(8 / 7) + 0.5 * math.log(8 / 9)) / 4,
        ),
    ],
)
def test_the_divergence_of_two_coins_is_that_worked_by_hand(interpolation: float, expected: float) -> None:
    log_p, log_q = torch.tensor([0.5, 0.5]).double().log(), torch.tensor([0.25, 0.75]).double().log()
    assert vocabulary_divergence(log_p, log_q, interpolation).item() == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), interpolation=st.floats(0.0, 1.0), scale=st.floats(0.1, 50.0))
def test_the_divergence_is_never_negative_and_zero_of_a_policy_from_itself(
    seed: int, interpolation: float, scale: float
) -> None:
    random = torch.Generator().manual_seed(seed)
    log_p, log_q = (scale * torch.randn((2, 5, 7), generator=random)).log_softmax(-1)
    assert (vocabulary_divergence(log_p, log_q, interpolation) > -1e-5).all()
    assert vocabulary_divergence(log_p, log_p, interpolation) == pytest.approx(torch.zeros(5), abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_sampled_form_has_this_gradient_in_the_mean_over_the_token(seed: int) -> None:
    """Of `self-distillation`, gamma 0 and `reinforce`: the mean over y from p of -(log q - log p) grad log p."""
    random = torch.Generator().manual_seed(seed)
    logits, of_teacher = torch.randn((2, 9), generator=random, dtype=torch.float64)
    logits.requires_grad_()
    log_p, log_q = logits.log_softmax(-1), of_teacher.log_softmax(-1)
    sampled = -(log_p.exp() * (log_q - log_p)).detach() @ log_p
    whole = vocabulary_divergence(log_p, log_q, 1.0)
    one, other = (torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (sampled, whole))
    assert other.numpy() == pytest.approx(one.numpy(), abs=1e-12)


@pytest.mark.parametrize("weight", [0.25, 1.0])
@pytest.mark.parametrize("interpolation", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("other", [False, True])
def test_the_gradient_is_that_of_an_independent_loop(
    make_policy: MakePolicy, weight: float, interpolation: float, other: bool
) -> None:
    policy, chosen = make_policy(0), learns_by(weight, interpolation, loss="reinforce")
    batch, shown = a_lesson()
    learner, model = precise_learner(policy), precise_learner(policy).model
    taught_by = precise_learner(make_policy(1)) if other else None
    learner.update(batch, chosen, None, Teacher(shown, taught_by))

    teacher = precise_learner(make_policy(1) if other else policy).model
    total, tokens = torch.zeros((), dtype=torch.float64), int(batch.sequences.mask.sum())
    for index, sequence in enumerate(two_turn_sequences()):
        log_p = (model(input_ids=torch.tensor([sequence.tokens])).logits[0] / chosen.temperature).log_softmax(-1)
        with torch.no_grad():
            read = torch.tensor([(*SHOWN, *sequence.tokens)])
            q = (teacher(input_ids=read).logits[0, len(SHOWN) :] / chosen.temperature).softmax(-1)
        for place, mask in enumerate(sequence.mask):
            if not mask:
                continue
            p = log_p[place - 1].exp()
            mixed = (1 - interpolation) * p + interpolation * q[place - 1]
            forward = (q[place - 1] * (q[place - 1] / (p if interpolation == 0 else mixed)).log()).sum()
            reverse = (p * (p / (q[place - 1] if interpolation == 1 else mixed)).log()).sum()
            divergence = {0.0: forward, 1.0: reverse}.get(
                interpolation, interpolation * forward + (1 - interpolation) * reverse
            )
            policy_loss = -batch.advantages[index][place] * log_p[place - 1, sequence.tokens[place]]
            total = total + ((1 - weight) * policy_loss + (weight * divergence if index else 0.0)) / tokens
    total.backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert relative_difference(gradients_of_first_step(learner._optimizer), expected) < 1e-10


def test_neither_micro_batches_nor_chunks_of_logits_change_the_gradient(make_policy: MakePolicy) -> None:
    batch, shown = a_lesson()
    found = []
    for tokens, chunk in ((60, 1000), (1000, 3)):
        learner = precise_learner(make_policy(0))
        learner._model_settings = learner._model_settings.changed(logit_chunk_tokens=chunk)
        learner.update(batch, learns_by(micro_batch_tokens=tokens), None, Teacher(shown))
        found.append(gradients_of_first_step(learner._optimizer))
    assert relative_difference(found[0], found[1]) < 1e-11


def test_the_teacher_stays_the_policy_that_it_was_before_the_first_step(make_policy: MakePolicy) -> None:
    """Shown nothing more than the policy, it is the policy: the divergence is that of the first step's move alone."""
    sequences = two_turn_sequences()
    batch = UpdateBatch.from_turns(sequences, [(1.0, -0.5)] * len(sequences))
    replies = np.arange(int(batch.sequences.mask.sum()), dtype=np.float64)
    batch = dataclasses.replace(batch, teacher_rows=batch.sequences.at_replies(replies))
    chosen = learns_by(0.5, loss="reinforce")
    learner = precise_learner(make_policy(0))
    first = learner.update(batch, chosen, None, Teacher(batch.sequences))["teacher_divergence"]
    assert first == pytest.approx(0.0, abs=1e-12)
    both = precise_learner(make_policy(0)).update(batch, chosen.changed(epochs=2), None, Teacher(batch.sequences))
    total = 0.0
    old = precise_learner(make_policy(0))
    for sequence in sequences:
        log_p, log_q = (
            (each.model(input_ids=torch.tensor([sequence.tokens])).logits[0] / chosen.temperature).log_softmax(-1)
            for each in (learner, old)
        )
        divergence = (log_p.exp() * (log_p - log_q)).sum(-1).detach()
        total += sum(float(divergence[place - 1]) for place, mask in enumerate(sequence.mask) if mask)
    assert total > 1e-3
    assert both["teacher_divergence"] == pytest.approx(total / (2 * len(replies)), rel=1e-9)  # the mean of both epochs


def test_without_anybody_to_learn_from_nothing_is_learned(make_policy: MakePolicy) -> None:
    batch, shown = a_lesson(unshown=6)
    learner = loaded_learner(make_policy(0))
    metrics = learner.update(batch, learns_by(), None, Teacher(shown))
    assert metrics["gradient_norm"] == 0.0
    assert metrics["teacher_divergence"] == 0.0


def test_a_teacher_and_distillation_come_together(make_policy: MakePolicy) -> None:
    batch, shown = a_lesson()
    for chosen, teacher in ((SETTINGS, Teacher(shown)), (learns_by(), None)):
        with pytest.raises(ValueError, match="must be a teacher for settings with distillation"):
            loaded_learner(make_policy(0)).update(batch, chosen, None, teacher)
    with pytest.raises(ValueError, match="give teacher_rows"):
        loaded_learner(make_policy(0)).update(
            dataclasses.replace(batch, teacher_rows=None), learns_by(), None, Teacher(shown)
        )
