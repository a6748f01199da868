"""What a step descends: against a loop that knows no micro-batch, for every loss, aggregation and further term."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from gradient_samples import gradients_of_first_step, loaded_learner, precise_learner, relative_difference
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import two_turn_sequences

from turnwise.config.optimization import ImportanceCorrection, ReferencePenalty
from turnwise.data.arrays import Ragged, SequenceBatch
from turnwise.errors import MismatchError
from turnwise.policy.learner.losses import LOSSES
from turnwise.policy.learner.update import Aggregation, UpdateBatch, UpdateSettings
from turnwise.policy.reply_states import reply_states
from turnwise.policy.scoring import at_reply_tokens, lay_out, score_replies

MakePolicy = Callable[..., Path]
Gradients = dict[str, torch.Tensor]

SETTINGS = UpdateSettings(
    learning_rate=1e-3, temperature=0.75, micro_batch_tokens=40, maximum_mismatch=10.0, maximum_gradient_norm=1e9
)
CONSTANT = 16.0
GROUPS = (4, 4, 2, 2, 2, 9)
TERMS: dict[str, dict[str, Any]] = {
    "alone": {},
    "with a reference and entropy": {
        "reference": ReferencePenalty(coefficient=0.25, estimator="k3"),
        "entropy_coefficient": 0.125,
    },
}
COMBINATIONS = [
    *((loss, "token-mean") for loss in LOSSES),
    *itertools.product(("clipped", "gspo"), (each for each in get_args(Aggregation) if each != "token-mean")),
]


def a_batch() -> UpdateBatch:
    """Six sequences of three prompts, one without any advantage; every number is exact in float32."""
    sequences = []
    for index, sequence in enumerate(two_turn_sequences()):
        row = tuple(mask * (-5.5 + ((7 * place + index) % 9 - 4) / 8) for place, mask in enumerate(sequence.mask))
        sequences.append(dataclasses.replace(sequence, log_probabilities=row))
    advantages = [(1.0, -0.5), (0.0, 0.0), (-2.0, 0.25), (0.5, 0.5), (-0.125, -1.0), (1.5, 2.0)]
    reference = tuple(tuple(value + 0.5 * (value != 0.0) for value in row.log_probabilities) for row in sequences)
    return UpdateBatch.from_turns(sequences, advantages, groups=GROUPS, reference_log_probabilities=reference)


def sampled_by_an_engine_that_is_off(policy: Path) -> UpdateBatch:
    """The batch, with an engine that is up to a quarter of a nat away from the learner."""
    batch = a_batch()
    own = loaded_learner(policy).log_probabilities(batch.sequences, SETTINGS.temperature, 1000)
    sequences = [
        dataclasses.replace(
            sequence,
            log_probabilities=tuple(
                mask * (round(log_pi * 1024) / 1024 + ((5 * place + index) % 7 - 3) / 12)
                for place, (mask, log_pi) in enumerate(zip(sequence.mask, row, strict=True))
            ),
        )
        for index, (sequence, row) in enumerate(zip(batch.sequences, own, strict=True))
    ]
    return dataclasses.replace(batch, sequences=SequenceBatch.of(sequences))


def with_options(loss: str, aggregation: str, **further: Any) -> UpdateSettings:
    constant = CONSTANT if aggregation == "constant" else None
    return SETTINGS.changed(loss=loss, aggregation=aggregation, aggregation_constant=constant, **further)


def gradients(policy: Path, batch: UpdateBatch, chosen: UpdateSettings, dtype: str = "float64") -> Gradients:
    """Of the first step: AdamW's first moment is then 0.1 x the gradient."""
    learner = precise_learner(policy) if dtype == "float64" else loaded_learner(policy)
    learner.update(batch, chosen)
    return gradients_of_first_step(learner._optimizer)


def token_loss(
    loss: str, log_pi: torch.Tensor, log_mu: torch.Tensor, log_ratios: list[tuple[float, float]], advantage: float
) -> Any:
    """The loss of one token as its equation has it, with the default options; `log_ratios` of its sequence's tokens,
    each with its advantage.
    """
    ratio = (log_pi - log_mu).exp()
    if loss in ("reinforce", "cispo", "topr", "vespo", "dppo-tv", "dppo-kl"):
        return -weight(loss, log_pi.item(), log_mu.item(), log_ratios, advantage) * advantage * log_pi
    if loss == "importance-sampling":
        return -ratio * advantage
    if loss == "sapo":
        tau = 1.0 if advantage > 0 else 1.05
        return -4 / tau * (tau * (ratio - 1)).sigmoid() * advantage
    if loss == "dro":
        return -(advantage * log_pi - (log_pi - log_mu).square() / 2)
    if loss == "gmpo":
        mean = sum(held(*each) for each in log_ratios) / len(log_ratios)
        own = held(log_pi - log_mu, advantage)
        return -math.exp(mean) * (own - own.detach()).exp() * advantage if advantage else 0.0 * log_pi
    low, high = 0.8, 1.2
    if loss == "gspo":
        low, high = 1 - 3e-4, 1 + 4e-4
        mean = sum(log_ratio for log_ratio, _ in log_ratios) / len(log_ratios)
        ratio = math.exp(mean) * (log_pi - log_pi.detach()).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def held(log_ratio: Any, advantage: float) -> Any:
    """GMPO's log ratio, held at 0.4 the way that the advantage pushes."""
    if advantage == 0:
        return 0.0 * log_ratio
    if isinstance(log_ratio, float):
        return min(log_ratio, 0.4) if advantage > 0 else max(log_ratio, -0.4)
    return log_ratio.clamp(max=0.4) if advantage > 0 else log_ratio.clamp(min=-0.4)


def weight(loss: str, log_pi: float, log_mu: float, log_ratios: list[tuple[float, float]], advantage: float) -> float:
    """The constant w of a loss -w A log pi."""
    ratio, p, m = math.exp(log_pi - log_mu), math.exp(log_pi), math.exp(log_mu)
    distance = abs(p - m)
    if loss == "dppo-kl":
        distance = m * math.log(m / p) + (1 - m) * math.log((1 - m) / (1 - p))
    if loss.startswith("dppo"):
        return 0.0 if distance > 0.2 and (advantage > 0) == (p > m) else min(ratio, 20.0)
    if loss == "vespo":
        k, decay = (2.0, 3.0) if advantage >= 0 else (3.0, 2.0)
        whole = math.exp(sum(log_ratio for log_ratio, _ in log_ratios))
        return float(whole**k * math.exp(decay * (1 - whole)))
    if loss == "topr":
        return 1.0 if advantage > 0 else min(ratio, 1.0)
    return min(ratio, 5.0) if loss == "cispo" else 1.0


def expected_gradients(
    policy: Path, batch: UpdateBatch, chosen: UpdateSettings, weights: list[tuple[float, ...]] | None = None
) -> Gradients:
    """Sequence by sequence and token by token, on the model's own logits, without padding; `weights` of importance."""
    model = precise_learner(policy).model
    tokens_of = [sum(sequence.mask) for sequence in batch.sequences]
    total = torch.zeros((), dtype=torch.float64)
    for index, sequence in enumerate(batch.sequences):
        logits = model(input_ids=torch.tensor([sequence.tokens])).logits[0] / chosen.temperature
        distribution = logits.log_softmax(-1)
        places = [place for place, mask in enumerate(sequence.mask) if mask]
        log_pi = {place: distribution[place - 1, sequence.tokens[place]] for place in places}
        behaviour = sequence.log_probabilities
        if weights is not None:
            behaviour = tuple(log_pi[place].item() if place in log_pi else 0.0 for place in range(len(sequence.tokens)))
        log_ratios = [(log_pi[place].item() - behaviour[place], batch.advantages[index][place]) for place in places]
        prompt = [count for count, group in zip(tokens_of, GROUPS, strict=True) if group == GROUPS[index]]
        divisor = {
            "token-mean": sum(tokens_of),
            "sequence-mean": len(tokens_of) * tokens_of[index],
            "constant": len(tokens_of) * CONSTANT,
            "prompt-mean": len(set(GROUPS)) * sum(prompt),
            "token-sum": 1,
            "sequence-sum": len(tokens_of),
        }[chosen.aggregation]
        for place in places:
            log_mu = torch.tensor(behaviour[place], dtype=torch.float64)
            advantage = batch.advantages[index][place]
            term = token_loss(chosen.loss, log_pi[place], log_mu, log_ratios, advantage)
            if weights is not None:
                term = weights[index][place] * term
            if chosen.reference is not None:
                assert batch.reference_log_probabilities is not None
                away = log_pi[place] - batch.reference_log_probabilities[index][place]
                term = term + chosen.reference.coefficient * ((-away).exp() + away - 1)
            row = distribution[place - 1]
            term = term + chosen.entropy_coefficient * (row.exp() * row).sum()
            total = total + term / divisor
    total.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize(("loss", "aggregation"), COMBINATIONS)
def test_the_gradient_is_that_of_an_independent_loop(
    make_policy: MakePolicy, loss: str, aggregation: str, terms: str
) -> None:
    policy, chosen = make_policy(0), with_options(loss, aggregation, **TERMS[terms])
    expected = expected_gradients(policy, a_batch(), chosen)
    assert relative_difference(gradients(policy, a_batch(), chosen), expected) < 1e-11


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize(("loss", "aggregation"), COMBINATIONS)
def test_how_the_batch_is_cut_into_micro_batches_does_not_change_the_gradient(
    make_policy: MakePolicy, loss: str, aggregation: str, terms: str, dtype: str, bound: float
) -> None:
    policy, chosen = make_policy(0), with_options(loss, aggregation, **TERMS[terms])
    whole, pairs, single = (
        gradients(policy, a_batch(), chosen.changed(micro_batch_tokens=tokens), dtype) for tokens in (10_000, 40, 1)
    )
    assert relative_difference(pairs, whole) < bound
    assert relative_difference(single, whole) < bound


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss", LOSSES)
def test_nor_does_the_cut_matter_to_a_correction(make_policy: MakePolicy, loss: str, level: Any) -> None:
    policy = make_policy(0)
    batch = sampled_by_an_engine_that_is_off(policy)
    chosen = with_options(loss, "token-mean", correction=ImportanceCorrection(kind="truncate", level=level))
    whole, single = (
        gradients(policy, batch, chosen.changed(micro_batch_tokens=tokens), "float32") for tokens in (10_000, 1)
    )
    assert relative_difference(single, whole) < 1e-5


def test_the_defaults_are_the_plain_token_mean_to_the_bit(make_policy: MakePolicy) -> None:
    """Sum the clipped losses, divide by the reply tokens, no more."""
    policy, batch = make_policy(0), a_batch()
    learner = loaded_learner(policy)
    chosen = SETTINGS.changed(clip_low=0.2, clip_high=0.28)
    part = batch.select([0, 2, 3, 4, 5])  # Sequence 1 has no advantage, and is not propagated backward.
    tokens, pad_token = chosen.micro_batch_tokens, learner._pad_token
    for micro_batch in lay_out(part.sequences, tokens, pad_token, torch.device("cpu"), packed=True):
        states = reply_states(learner.model, micro_batch)
        log_pi, _ = score_replies(
            learner.model, states, micro_batch.targets, temperature=chosen.temperature, chunk_tokens=4096
        )
        advantages = at_reply_tokens(part.advantages, micro_batch)
        log_mu = at_reply_tokens(part.sequences.log_probabilities, micro_batch)
        ratio = (log_pi - log_mu).exp()
        loss = -torch.minimum(ratio * advantages, ratio.clamp(1.0 - 0.2, 1.0 + 0.28) * advantages)
        (loss.sum() / int(batch.sequences.mask.sum())).backward()
    expected = {name: parameter.grad for name, parameter in learner.model.named_parameters()}
    fresh = loaded_learner(policy)
    fresh._gradient(batch, chosen)
    for name, parameter in fresh.model.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name


def test_only_what_is_used_is_reported(make_policy: MakePolicy) -> None:
    plain = {
        "loss",
        "ratio",
        "clip_fraction_low",
        "clip_fraction_high",
        "entropy",
        "approximate_kl",
        "gradient_norm",
        "mismatch",
        "mismatch_maximum",
        "tokens",
        "padding_share",
        "optimizer_steps",
    }
    policy = make_policy(0)
    further: list[tuple[dict[str, Any], set[str]]] = [
        ({}, set()),
        ({"dual_clip": 3.0}, {"dual_clip_fraction"}),
        ({"aggregation": "sequence-mean"}, {"objective"}),
        ({"entropy_coefficient": 0.1}, {"objective"}),
        ({"reference": ReferencePenalty(coefficient=0.1)}, {"objective", "kl_reference"}),
        ({"reference": ReferencePenalty(coefficient=0.1, estimator="k1", place="reward")}, set()),
        (
            {"correction": ImportanceCorrection(kind="truncate")},
            {"importance_weight_mean", "importance_weight_maximum", "importance_cut_share"},
        ),
    ]
    for options, names in further:
        metrics = loaded_learner(policy).update(a_batch(), SETTINGS.changed(**options))
        assert set(metrics) == plain | names, options


def test_the_objective_and_the_divergence_are_reported_as_they_are(make_policy: MakePolicy) -> None:
    """By hand from the learner's own log-probabilities: the loss of REINFORCE, k2, and the entropy."""
    learner, batch = loaded_learner(make_policy(0)), a_batch()
    own, entropies = learner.scores(batch.sequences, SETTINGS.temperature, 1000)
    assert batch.reference_log_probabilities is not None
    rows = [
        (log_pi, reference, advantage, entropy)
        for sequence, *of_sequence in zip(
            batch.sequences, own, batch.reference_log_probabilities, batch.advantages, entropies, strict=True
        )
        for mask, log_pi, reference, advantage, entropy in zip(sequence.mask, *of_sequence, strict=True)
        if mask
    ]
    loss = sum(-advantage * log_pi for log_pi, _, advantage, _ in rows) / len(rows)
    k2 = sum((log_pi - reference) ** 2 / 2 for log_pi, reference, _, _ in rows) / len(rows)
    entropy = sum(row[-1] for row in rows) / len(rows)
    chosen = SETTINGS.changed(
        loss="reinforce",
        reference=ReferencePenalty(coefficient=0.25, estimator="k2"),
        entropy_coefficient=0.125,
    )
    metrics = learner.update(batch, chosen)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["kl_reference"] == pytest.approx(k2, rel=1e-5)
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-5)
    assert metrics["objective"] == pytest.approx(loss + 0.25 * k2 - 0.125 * entropy, rel=1e-5)


@settings(max_examples=12)
@given(
    st.floats(0.125, 3.0, width=32), st.integers(0, 299), st.sampled_from(list(LOSSES)), st.sampled_from(list(TERMS))
)
def test_observation_tokens_and_padding_change_nothing(
    make_policy: MakePolicy, value: float, pad_token: int, loss: str, terms: str
) -> None:
    """Their advantages, log-probabilities and reference are not read, and padding is not seen."""
    policy, batch = make_policy(0), a_batch()
    assert batch.reference_log_probabilities is not None
    masks = [sequence.mask for sequence in batch.sequences]

    def changed(rows: Any) -> Ragged:
        return Ragged.of(
            tuple(number if mask else value for number, mask in zip(row, of_row, strict=True))
            for row, of_row in zip(rows, masks, strict=True)
        )

    of_engine = changed(sequence.log_probabilities for sequence in batch.sequences)
    other = dataclasses.replace(
        batch,
        sequences=dataclasses.replace(batch.sequences, log_probabilities=of_engine.values),
        advantages=changed(batch.advantages),
        reference_log_probabilities=changed(batch.reference_log_probabilities),
    )
    chosen = with_options(loss, "prompt-mean", **TERMS[terms])
    plain, padded = loaded_learner(policy), loaded_learner(policy)
    padded._pad_token = pad_token
    assert plain.update(batch, chosen) == padded.update(other, chosen)
    for name, parameter in plain.model.named_parameters():
        assert torch.equal(parameter, padded.model.get_parameter(name)), name


@pytest.mark.parametrize(
    "terms", [{"reference": ReferencePenalty(coefficient=0.5, estimator="k2")}, {"entropy_coefficient": 0.5}]
)
def test_a_batch_without_advantages_still_follows_the_other_terms(
    make_policy: MakePolicy, terms: dict[str, Any]
) -> None:
    policy = make_policy(0)
    silent = UpdateBatch.from_turns(
        a_batch().sequences, [(0.0, 0.0)] * 6, reference_log_probabilities=a_batch().reference_log_probabilities
    )
    assert loaded_learner(policy).update(silent, SETTINGS)["gradient_norm"] == 0.0
    learner = loaded_learner(policy)
    chosen = SETTINGS.changed(**terms)
    values = [learner.update(silent, chosen)["objective"] for _ in range(8)]
    assert values[-1] < values[1] < values[0]


def test_an_entropy_bonus_makes_the_policy_less_certain(make_policy: MakePolicy) -> None:
    """The policy is first made certain, since a fresh one is nearly as uncertain as can be."""
    policy = make_policy(0)
    entropies = {}
    for coefficient in (0.0, 2.0):
        learner = loaded_learner(policy)
        for _ in range(20):
            learner.supervised_step(a_batch().sequences, learning_rate=3e-3, micro_batch_tokens=100)
        for _ in range(5):
            learner.update(a_batch(), SETTINGS.changed(entropy_coefficient=coefficient))
        _, rows = learner.scores(a_batch().sequences, SETTINGS.temperature, 1000)
        entropies[coefficient] = sum(map(sum, rows))
    assert entropies[2.0] > 1.05 * entropies[0.0]


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("kind", ["truncate", "mask"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_correction_weighs_the_policy_loss_and_takes_the_ratio_to_the_learner(
    make_policy: MakePolicy, loss: str, kind: Any, level: Any
) -> None:
    policy = make_policy(0)
    batch = sampled_by_an_engine_that_is_off(policy)
    correction = ImportanceCorrection(kind=kind, level=level, high=1.25)
    chosen = with_options(
        loss,
        "sequence-mean",
        correction=correction,
        reference=ReferencePenalty(coefficient=0.25, estimator="k3"),
        entropy_coefficient=0.125,
    )
    learner = precise_learner(policy)
    own = learner.log_probabilities(batch.sequences, SETTINGS.temperature, 1000)
    weights = []
    for sequence, row in zip(batch.sequences, own, strict=True):
        of_token = [
            math.exp(log_pi - log_mu) * mask
            for log_pi, log_mu, mask in zip(row, sequence.log_probabilities, sequence.mask, strict=True)
        ]
        if level == "sequence":
            product = math.prod(weight for weight, mask in zip(of_token, sequence.mask, strict=True) if mask)
            of_token = [product * mask for mask in sequence.mask]
        weights.append(
            tuple(min(weight, 1.25) if kind == "truncate" else weight * (0.5 <= weight <= 1.25) for weight in of_token)
        )
    metrics = learner.update(batch, chosen)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert 0.0 < metrics["importance_cut_share"] < 1.0
    assert 0.05 < metrics["mismatch"] < 0.25
    expected = expected_gradients(policy, batch, chosen, weights)
    assert relative_difference(gradients(policy, batch, chosen), expected) < 1e-6


def test_later_steps_take_the_ratio_to_the_learner_before_the_first(make_policy: MakePolicy) -> None:
    """With an engine that agrees, a correction changes nothing, over any number of steps."""
    policy = make_policy(0)
    own = loaded_learner(policy).log_probabilities(a_batch().sequences, SETTINGS.temperature, 1000)
    sequences = [
        dataclasses.replace(sequence, log_probabilities=tuple(row))
        for sequence, row in zip(a_batch().sequences, own, strict=True)
    ]
    batch = UpdateBatch.from_turns(sequences, [(1.0, -1.0), (0.5, 0.5)] * 3)
    chosen = SETTINGS.changed(epochs=3, mini_batches=2, learning_rate=3e-3)
    metrics = [
        loaded_learner(policy).update(batch, chosen.changed(correction=correction))
        for correction in (None, ImportanceCorrection(kind="truncate"))
    ]
    assert metrics[0]["approximate_kl"] > 1e-3
    assert metrics[1]["importance_weight_mean"] == pytest.approx(1.0, abs=1e-6)
    for name, value in metrics[0].items():
        assert metrics[1][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_a_mask_that_leaves_nothing_stops_before_anything_is_trained(make_policy: MakePolicy) -> None:
    learner = loaded_learner(make_policy(0))
    far = [
        dataclasses.replace(sequence, log_probabilities=tuple(-20.0 * mask for mask in sequence.mask))
        for sequence in two_turn_sequences()
    ]
    batch = UpdateBatch.from_turns(far, [(1.0, 1.0)] * 6)
    with pytest.raises(MismatchError, match="TW-engine-mismatch"):
        learner.update(batch, SETTINGS.changed(correction=ImportanceCorrection(kind="mask")))
    assert learner.steps == 0


def test_a_batch_that_lacks_what_the_settings_read_is_refused(make_policy: MakePolicy) -> None:
    learner = loaded_learner(make_policy(0))
    bare = UpdateBatch.from_turns(two_turn_sequences(), [(1.0, 1.0)] * 6)
    with pytest.raises(ValueError, match="give groups"):
        learner.update(bare, SETTINGS.changed(aggregation="prompt-mean"))
    with pytest.raises(ValueError, match="give reference_log_probabilities"):
        learner.update(bare, SETTINGS.changed(reference=ReferencePenalty(coefficient=0.1)))
    assert learner.steps == 0
    with pytest.raises(ValueError, match="groups must have one number per sequence of an update batch; found 1 for 6"):
        UpdateBatch.from_turns(two_turn_sequences(), [(1.0, 1.0)] * 6, groups=(1,))
    with pytest.raises(ValueError, match="reference_log_probabilities must have one number per token"):
        UpdateBatch.from_turns(two_turn_sequences(), [(1.0, 1.0)] * 6, reference_log_probabilities=((0.0,),) * 6)


def test_a_part_of_a_batch_keeps_what_belongs_to_its_sequences() -> None:
    batch = a_batch()
    part = batch.select([4, 1])
    assert list(part.sequences) == [batch.sequences[4], batch.sequences[1]]
    assert part.groups == (2, 4)
    assert part.advantages == batch.advantages.select([4, 1])
    assert part.advantages.tolist() == [batch.advantages.tolist()[index] for index in (4, 1)]
    assert batch.reference_log_probabilities is not None
    assert part.reference_log_probabilities == batch.reference_log_probabilities.select([4, 1])
    assert part.importance_weights is None
