"""The critic: which state a value is of, what a loss moves, and that it goes on to the bit."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gradient_samples import gradients_of_first_step
from policy_samples import VOCABULARY, two_turn_sequences
from refusals import refusal

from turnwise.config.model_settings import ModelSettings
from turnwise.config.schema import CriticSection
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.errors import ArtifactError, ConfigurationError, NotFiniteError
from turnwise.policy.critic.critic import (
    OPTIMIZER_FILE,
    VALUE_HEAD_FILE,
    Critic,
    ValueBatch,
    clipped_value_loss,
    explained_variance,
)
from turnwise.policy.model import load_policy
from turnwise.policy.reply_states import reply_states
from turnwise.policy.scoring import lay_out, score_replies

pytestmark = pytest.mark.kernels

MakePolicy = Callable[..., Path]
SETTINGS = CriticSection(learning_rate=1e-2, micro_batch_tokens=60)
ON_POLICY = CriticSection(learning_rate=1e-2, micro_batch_tokens=60, trunk="policy", coefficient=0.5)


def taught(critic: Critic) -> Critic:
    """A critic that no longer says 0 everywhere."""
    made = torch.Generator().manual_seed(2)
    with torch.no_grad():
        critic.head.weight.copy_(torch.randn(critic.head.weight.shape, generator=made))
        critic.head.bias.fill_(0.25)
    return critic


def own(policy: Path, settings: CriticSection = SETTINGS, seed: int = 0) -> Critic:
    return Critic.with_own_trunk(policy, settings, seed=seed, threads=1)


def a_value_batch(critic: Critic) -> ValueBatch:
    """Returns that differ by turn: 1 in the first, 0 in the second, and more for later sequences."""
    sequences = two_turn_sequences()
    returns = tuple(
        tuple(float(turn == 0) + 0.1 * index for turn in sequence.turn_of_token if turn >= 0)
        for index, sequence in enumerate(sequences)
    )
    return ValueBatch.of(sequences, critic.values(sequences, 1000), returns)


def parameters(critic: Critic) -> dict[str, torch.Tensor]:
    trunk = {name: tensor.detach().clone() for name, tensor in critic._trunk.state_dict().items()}
    return trunk | {f"head.{name}": tensor.detach().clone() for name, tensor in critic.head.state_dict().items()}


def test_every_state_is_worth_nothing_at_first(make_policy: MakePolicy) -> None:
    sequences = two_turn_sequences()
    values = own(make_policy(0)).values(sequences, 1000)
    assert [len(row) for row in values] == [sum(sequence.mask) for sequence in sequences]
    assert {value for row in values for value in row} == {0.0}


def test_a_value_is_that_of_the_hidden_state_that_predicts_the_token(make_policy: MakePolicy) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()
    critic, model = taught(own(policy)), load_policy(policy, ModelSettings())
    values, bootstraps = critic.values(sequences, 40), critic.bootstrap(sequences, 40)
    for sequence, row, bootstrap in zip(sequences, values, bootstraps, strict=True):
        hidden = model.base_model(input_ids=torch.tensor([sequence.tokens])).last_hidden_state[0]
        expected = (hidden @ critic.head.weight.T + critic.head.bias).squeeze(-1).tolist()
        places = [place for place, mask in enumerate(sequence.mask) if mask]
        # Values of up to 15 in float32; transformers' forward pass is on one side only.
        assert row == pytest.approx([expected[place - 1] for place in places], rel=3e-6, abs=1e-5)
        assert bootstrap == pytest.approx(expected[-1], abs=1e-5)


def test_a_value_sees_what_came_before_its_token_and_not_the_token(make_policy: MakePolicy) -> None:
    critic, sequence = taught(own(make_policy(0))), two_turn_sequences()[2]
    replies = [place for place, mask in enumerate(sequence.mask) if mask]
    changed_place = replies[2]
    tokens = list(sequence.tokens)
    tokens[changed_place] = (tokens[changed_place] + 1) % VOCABULARY
    changed = dataclasses.replace(sequence, tokens=tuple(tokens))
    before, after = critic.values([sequence, changed], 1000)
    for index, place in enumerate(replies):
        assert bool(abs(before[index] - after[index]) > 1e-4) is (place > changed_place)
    last = dataclasses.replace(sequence, tokens=(*sequence.tokens[:-1], (sequence.tokens[-1] + 1) % VOCABULARY))
    assert critic.values([last], 1000)[0] == pytest.approx(before, abs=1e-6)
    assert abs(critic.bootstrap([last], 1000)[0] - critic.bootstrap([sequence], 1000)[0]) > 1e-4


def test_padding_and_micro_batches_change_no_value(make_policy: MakePolicy) -> None:
    critic, sequences = taught(own(make_policy(0))), two_turn_sequences()
    for index, sequence in enumerate(sequences):
        assert critic.values([sequence], 1)[0] == pytest.approx(critic.values(sequences, 10_000)[index], abs=1e-5)
        assert critic.bootstrap([sequence], 1)[0] == pytest.approx(critic.bootstrap(sequences, 10_000)[index], abs=1e-5)


def test_the_gradient_is_that_of_the_mean_over_targets_however_it_is_cut(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    batch = a_value_batch(taught(own(policy)))

    def gradient(micro_batch_tokens: int) -> tuple[dict[str, torch.Tensor], float]:
        critic = taught(own(policy))
        settings = SETTINGS.changed(micro_batch_tokens=micro_batch_tokens, maximum_gradient_norm=1e9)
        loss = critic.update(batch, settings, seed=0)["value_loss"]
        return gradients_of_first_step(critic._optimizer), loss

    model, head = load_policy(policy, ModelSettings()), taught(own(policy)).head
    errors = []
    for sequence, returns in zip(batch.sequences, batch.returns, strict=True):
        hidden = model.base_model(input_ids=torch.tensor([sequence.tokens])).last_hidden_state[0]
        places = [place - 1 for place, mask in enumerate(sequence.mask) if mask]
        errors.append(head(hidden[places]).squeeze(-1) - torch.tensor(returns.tolist()))
    independent = 0.5 * torch.cat(errors).square().mean()
    independent.backward()
    expected = {f"trunk.{name}": parameter.grad for name, parameter in model.base_model.named_parameters()}
    expected |= {f"head.{name}": parameter.grad for name, parameter in head.named_parameters()}
    for micro_batch_tokens in (1, 40, 10_000):
        found, loss = gradient(micro_batch_tokens)
        assert loss == pytest.approx(independent.item(), rel=1e-5)
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert (tensor - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


def test_a_critic_learns_its_returns_and_says_how_well_it_knew_them(make_policy: MakePolicy) -> None:
    critic = own(make_policy(0))
    settings = SETTINGS.changed(learning_rate=3e-3, clip=None)
    history = [critic.update(a_value_batch(critic), settings, seed=0) for _ in range(40)]
    assert history[0]["explained_variance"] == 0.0, "every state was worth 0"
    assert history[-1]["explained_variance"] > 0.9
    assert history[-1]["value_loss"] < 0.05 * history[0]["value_loss"]
    assert history[0]["value_gradient_norm"] > 0
    batch = a_value_batch(critic)
    returns = batch.returns.values.tolist()
    assert history[0]["return_mean"] == pytest.approx(sum(returns) / len(returns))
    assert critic.steps == 40


def test_the_clip_fraction_counts_values_that_moved_too_far(make_policy: MakePolicy) -> None:
    critic = own(make_policy(0))
    batch = a_value_batch(critic)
    settings = SETTINGS.changed(clip=1e-4, learning_rate=1e-3)
    assert critic.update(batch, settings, seed=0)["value_clip_fraction"] == 0.0, (
        "before its first step nothing has moved"
    )
    assert critic.update(batch, settings, seed=0)["value_clip_fraction"] > 0.5


def test_where_all_returns_are_equal_there_is_no_variance_to_explain(make_policy: MakePolicy) -> None:
    critic, sequences = own(make_policy(0)), two_turn_sequences()
    rows = tuple((0.0,) * sum(sequence.mask) for sequence in sequences)
    metrics = critic.update(ValueBatch.of(sequences, rows, rows), SETTINGS, seed=0)
    assert "explained_variance" not in metrics
    assert explained_variance([0.0, 1.0, 0.5], [0.3, 0.1 + 0.2, 0.3]) is None, "returns that differ by a rounding"
    assert all(math.isfinite(value) for value in metrics.values())


def test_mini_batches_deal_every_sequence_once_per_epoch_in_an_order_of_the_seed(make_policy: MakePolicy) -> None:
    batch = a_value_batch(own(make_policy(0)))
    settings = SETTINGS.changed(mini_batches=4, epochs=2)
    parts = list(batch.parts(settings, seed=5))
    assert [len(part.sequences) for part in parts] == [2, 2, 1, 1] * 2
    for epoch in (parts[:4], parts[4:]):
        dealt = [sequence for part in epoch for sequence in part.sequences]
        assert sorted(map(repr, dealt)) == sorted(map(repr, batch.sequences))
    assert parts == list(batch.parts(settings, seed=5))
    assert parts != list(batch.parts(settings, seed=6))


def test_random_weights_are_those_of_the_seed(make_policy: MakePolicy) -> None:
    policy, random = make_policy(0), SETTINGS.changed(initial="random")
    state = torch.get_rng_state()
    first, again, other = (own(policy, random, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state), "the engine samples from this generator"
    name = "layers.1.mlp.up_proj.weight"
    assert torch.equal(parameters(first)[name], parameters(again)[name])
    assert not torch.equal(parameters(first)[name], parameters(other)[name])
    assert not torch.equal(parameters(first)[name], parameters(own(policy))[name])
    of_policy = load_policy(policy, ModelSettings()).state_dict()
    assert torch.equal(parameters(own(policy))[name], of_policy[f"model.{name}"])


TWO_HEADS = SETTINGS.changed(heads=2, clip=None)


def test_the_smaller_of_two_values_counts_and_both_learn_the_same_targets(make_policy: MakePolicy) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()
    critic = own(policy, TWO_HEADS)
    found = critic.values(sequences, 1000)
    single = own(policy)
    with torch.no_grad():
        of_heads = []
        for head in range(2):
            single.head.weight.copy_(critic.head.weight[head : head + 1])
            of_heads.append(single.values(sequences, 1000).values)
    assert found.values == pytest.approx(np.minimum(*of_heads), abs=1e-6)
    assert (of_heads[0] < of_heads[1]).any() and (of_heads[0] > of_heads[1]).any()

    returns = torch.tensor([0.5, -1.0, 2.0])
    states = torch.randn((3, critic.head.in_features), generator=torch.Generator().manual_seed(1))
    loss, tally = critic.loss(states, torch.zeros(3), returns, None)
    loss.backward()
    values = critic.head(states)
    assert loss.item() == pytest.approx(((values - returns[:, None]) ** 2).sum().item() / 2, rel=1e-6)
    assert tally.targets == 3
    expected = (values - returns[:, None]).detach().T @ states
    assert torch.allclose(critic.head.weight.grad, expected, atol=1e-5)


def test_two_heads_are_those_of_the_seed(make_policy: MakePolicy) -> None:
    first, again, other = (own(make_policy(0), TWO_HEADS, seed).head.weight for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("changes", [{}, {"initial": "random"}, {"heads": 2, "clip": None}])
def test_a_restored_critic_goes_on_to_the_bit(make_policy: MakePolicy, tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = SETTINGS.changed(mini_batches=2, epochs=2, weight_decay=0.01, betas=(0.9, 0.95), **changes)
    critic = own(make_policy(0), settings)
    critic.update(a_value_batch(critic), settings, seed=0)
    critic.save(tmp_path)
    restored = Critic.restore(tmp_path, threads=1)
    assert restored.steps == critic.steps == 4
    batch = a_value_batch(critic)
    assert a_value_batch(restored) == batch
    assert critic.update(batch, settings, seed=0) == restored.update(batch, settings, seed=0)
    for name, tensor in parameters(critic).items():
        assert torch.equal(tensor, parameters(restored)[name]), name
    (tmp_path / OPTIMIZER_FILE).unlink()
    with pytest.raises(ArtifactError, match="TW-optimizer-state"):
        Critic.restore(tmp_path, threads=1)


def test_a_critic_that_has_not_stepped_is_saved_and_restored(make_policy: MakePolicy, tmp_path: Path) -> None:
    own(make_policy(0)).save(tmp_path)
    assert Critic.restore(tmp_path, threads=1).steps == 0
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_restoring_from_a_policy_says_what_is_missing(make_policy: MakePolicy) -> None:
    with pytest.raises(ArtifactError, match=rf"{VALUE_HEAD_FILE}.*TW-incomplete-policy"):
        Critic.restore(make_policy(0), threads=1)


def test_the_critic_leaves_torchs_settings_and_the_policy_as_they_were(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    before = (policy / "model.safetensors").read_bytes()
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    critic = own(policy)
    critic.update(a_value_batch(critic), SETTINGS, seed=0)
    critic.bootstrap(two_turn_sequences(), 50)
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), state), "the engine samples from this generator"
    assert (policy / "model.safetensors").read_bytes() == before


def test_on_the_policys_trunk_the_joint_loss_moves_both_and_the_output_layer_is_the_policys(
    make_policy: MakePolicy,
) -> None:
    """The learner's use: the trunk's gradient is the sum of both losses', the head's the value loss's alone."""
    model = load_policy(make_policy(0, tied=False), ModelSettings())
    critic = taught(Critic.on_trunk_of(model, threads=1))
    (micro_batch,) = lay_out(SequenceBatch.of(two_turn_sequences()), 10_000, 0, torch.device("cpu"))
    returns = torch.linspace(0.0, 1.0, len(micro_batch.targets))
    watched = {**dict(model.named_parameters()), "head": critic.head.weight}

    def gradients(of_policy: float, of_value: float) -> dict[str, torch.Tensor]:
        states = reply_states(model, micro_batch)
        chosen, _ = score_replies(model, states, micro_batch.targets, temperature=1.0, chunk_tokens=7)
        values = critic.values_at(states)
        value_loss = clipped_value_loss(values, values.detach(), returns, 0.2).loss.mean()
        loss = -of_policy * chosen.mean() + of_value * value_loss
        found = torch.autograd.grad(loss, list(watched.values()), materialize_grads=True)
        return dict(zip(watched, found, strict=True))

    joint, policy_alone, value_alone = gradients(1.0, 0.5), gradients(1.0, 0.0), gradients(0.0, 0.5)
    for name, gradient in joint.items():
        expected = policy_alone[name] + value_alone[name]
        assert (gradient - expected).norm() <= 1e-5 * expected.norm() + 1e-9, name
    assert value_alone["lm_head.weight"].norm() == 0 < policy_alone["lm_head.weight"].norm()
    assert policy_alone["head"].norm() == 0 < value_alone["head"].norm()
    trunk = "model.layers.0.mlp.up_proj.weight"
    assert policy_alone[trunk].norm() > 0 and value_alone[trunk].norm() > 0


def test_the_warm_up_on_the_policys_trunk_moves_the_head_alone(make_policy: MakePolicy, tmp_path: Path) -> None:
    model = load_policy(make_policy(0), ModelSettings())
    critic = Critic.on_trunk_of(model, threads=1)
    before = parameters(critic)
    metrics = critic.update(a_value_batch(critic), ON_POLICY, seed=0)
    assert metrics["value_gradient_norm"] > 0
    after = parameters(critic)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"head.weight", "head.bias"}
    assert all(parameter.grad is None for parameter in model.parameters())
    # Saved into the policy's folder, out of the engine's sight; restored on the policy's trunk, to the bit.
    model.save_pretrained(tmp_path)
    critic.save(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    restored = Critic.on_trunk_of(load_policy(tmp_path, ModelSettings()), threads=1, folder=tmp_path)
    batch = a_value_batch(critic)
    assert critic.update(batch, ON_POLICY, seed=0) == restored.update(batch, ON_POLICY, seed=0)
    assert torch.equal(critic.head.weight, restored.head.weight)


def test_a_head_of_another_critic_is_not_taken_for_ones_own(make_policy: MakePolicy, tmp_path: Path) -> None:
    critic = own(make_policy(0))
    critic.update(a_value_batch(critic), SETTINGS, seed=0)
    critic.save(tmp_path)
    with pytest.raises(ArtifactError, match="TW-optimizer-state"):
        Critic.on_trunk_of(load_policy(make_policy(0), ModelSettings()), threads=1, folder=tmp_path)


def test_a_critic_may_be_held_as_the_policy_is(make_policy: MakePolicy, tmp_path: Path) -> None:
    model = ModelSettings(gradient_checkpointing=True)
    policy = make_policy(0)
    saving, plain = Critic.with_own_trunk(policy, SETTINGS, seed=0, threads=1, model=model), own(policy)
    batch = a_value_batch(plain)
    for _ in range(2):
        assert saving.update(batch, SETTINGS, seed=0) == plain.update(batch, SETTINGS, seed=0)
    assert all(torch.equal(tensor, parameters(plain)[name]) for name, tensor in parameters(saving).items())
    saving.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["Qwen3Model"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trunk": "shared"}, "trunk must be one of own, policy; found 'shared'"),
        ({"initial": "zero"}, "initial must be one of policy, random; found 'zero'"),
        ({"trunk": "policy"}, "found trunk 'policy' and coefficient None"),
        ({"coefficient": 0.5}, "found trunk 'own' and coefficient 0.5"),
        ({"trunk": "policy", "coefficient": 0.5, "initial": "random"}, "must begin with the policy's weights"),
        ({"epochs": 0}, "epochs must be at least 1; found 0"),
        ({"warm_up": -1}, "warm_up must be at least 0; found -1"),
        ({"clip": 0.0}, "clip must be above 0; found 0.0"),
        ({"heads": 3}, "heads must be at most 2; found 3"),
        ({"heads": 2}, "clip must be null with two heads, of which only the smaller value is known"),
        ({"heads": 2, "clip": None, "trunk": "policy", "coefficient": 0.5}, "heads must be 1 on the policy's trunk"),
        ({"privileged": True, "trunk": "policy", "coefficient": 0.5}, "privileged must be false on the policy's trunk"),
        ({"learning_rate": 0.0}, "learning_rate must be at least 1e-12; found 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number; found nan"),
        ({"betas": (0.9, 1.0)}, "betas.1 must be below 1; found 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(CriticSection, {**SETTINGS.model_dump(), **changes})


def test_a_critic_for_the_policys_trunk_does_not_get_one_of_its_own(make_policy: MakePolicy) -> None:
    with pytest.raises(ConfigurationError, match="TW-critic-trunk"):
        own(make_policy(0), ON_POLICY)


@pytest.mark.parametrize(
    ("values", "returns", "reason"),
    [
        (((0.0,),), ((1.0, 1.0),), "values must have one number per reply token"),
        (((0.0, 0.0),), ((1.0,),), "returns must have one number per reply token"),
        (((0.0, 0.0),), ((math.nan, 1.0),), r"returns.*TW-not-finite"),
        (((math.inf, 0.0),), ((0.0, 1.0),), r"values.*TW-not-finite"),
    ],
)
def test_a_batch_that_does_not_match_is_refused(values: Any, returns: Any, reason: str) -> None:
    with pytest.raises(ValueError, match="a return to learn from; found none"):
        ValueBatch.of([TokenSequence((9,), (-1,), (0.0,))], [()], [()])
    sequence = TokenSequence((9, 3, 4), (-1, 0, 0), (0.0, -1.0, -1.0))
    with pytest.raises((ValueError, NotFiniteError), match=reason):
        ValueBatch.of([sequence], values, returns)
