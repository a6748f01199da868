"""The learner: what receives a gradient, what does not change it, and that it goes on to the bit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradient_samples import gradients_of_first_step
from policy_samples import two_turn_sequences
from refusals import refusal
from safetensors.torch import load_file

from turnwise.config.optimization import ImportanceCorrection
from turnwise.data.arrays import Ragged, SequenceBatch, TokenSequence
from turnwise.errors import ArtifactError, ConfigurationError, MismatchError, NotFiniteError
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings, mini_batches

pytestmark = pytest.mark.kernels

MakePolicy = Callable[..., Path]
SETTINGS = UpdateSettings(learning_rate=1e-3, temperature=1.0, micro_batch_tokens=40, maximum_mismatch=10.0)


def an_update_batch() -> UpdateBatch:
    sequences = two_turn_sequences()
    return UpdateBatch.from_turns(sequences, [(1.0 - index, 0.5 * index) for index in range(len(sequences))])


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.model.named_parameters()}


def with_token(sequence: TokenSequence, place: int, token: int) -> TokenSequence:
    tokens = (*sequence.tokens[:place], token, *sequence.tokens[place + 1 :])
    return dataclasses.replace(sequence, tokens=tokens)


def test_log_probabilities_are_those_of_the_models_own_forward_pass(make_policy: MakePolicy) -> None:
    learner, sequences = Learner(make_policy(0), threads=1), two_turn_sequences()
    found, entropies = learner.scores(sequences, 0.7, micro_batch_tokens=50)
    assert found.values.tolist() == learner.log_probabilities(sequences, 0.7, micro_batch_tokens=50).values.tolist()
    for sequence, log_probabilities, of_entropy in zip(sequences, found, entropies, strict=True):
        with torch.no_grad():
            logits = learner.model(input_ids=torch.tensor([sequence.tokens])).logits[0]
        expected = (logits / 0.7).log_softmax(-1)
        for place, turn in enumerate(sequence.turn_of_token):
            if turn < 0:
                assert log_probabilities[place] == of_entropy[place] == 0.0
            else:
                row = expected[place - 1]
                assert log_probabilities[place] == pytest.approx(row[sequence.tokens[place]].item(), abs=1e-5)
                assert of_entropy[place] == pytest.approx(-(row.exp() * row).sum().item(), abs=1e-5)


def test_an_observation_is_attended_to(make_policy: MakePolicy) -> None:
    learner, sequence = Learner(make_policy(0), threads=1), two_turn_sequences()[3]
    between = sequence.turn_of_token.index(-1, sequence.turn_of_token.index(0))
    changed = with_token(sequence, between, sequence.tokens[between] + 1)
    before, after = learner.log_probabilities([sequence, changed], 1.0, 1000)
    for place, turn in enumerate(sequence.turn_of_token):
        if turn == 0:
            assert before[place] == pytest.approx(after[place], abs=1e-6), "the past does not see the future"
        if turn == 1:
            assert abs(before[place] - after[place]) > 1e-4


def test_only_reply_tokens_are_trained_on(make_policy: MakePolicy) -> None:
    """The step's gradient is that of a loss in which nothing but the reply tokens appears as a target."""
    learner, sequences = Learner(make_policy(0, tied=False), threads=1), two_turn_sequences()
    losses = []
    for sequence in sequences:
        tokens, of_reply = torch.tensor(sequence.tokens), torch.tensor(sequence.mask).bool()
        logits = learner.model(input_ids=tokens.unsqueeze(0)).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], tokens[1:], reduction="none")[of_reply[1:]])
    torch.cat(losses).mean().backward()
    expected = {name: parameter.grad.clone() for name, parameter in learner.model.named_parameters()}
    learner.model.zero_grad()
    learner.supervised_step(sequences, learning_rate=1e-3, micro_batch_tokens=40, maximum_gradient_norm=1e9)
    for name, gradient in gradients_of_first_step(learner._optimizer).items():
        assert (gradient - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


def test_the_supervised_loss_is_the_mean_over_reply_tokens_and_falls(make_policy: MakePolicy) -> None:
    learner, sequences = Learner(make_policy(0), threads=1), two_turn_sequences()
    before = [value for row in learner.log_probabilities(sequences, 1.0, 1000) for value in row if value]
    losses = [learner.supervised_step(sequences, learning_rate=3e-3, micro_batch_tokens=60)["loss"] for _ in range(30)]
    assert losses[0] == pytest.approx(-sum(before) / len(before), rel=1e-5)
    assert losses[-1] < 0.5 * losses[0]
    assert learner.steps == 30


def test_the_size_of_micro_batches_does_not_change_the_gradient(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    whole, parts = Learner(policy, threads=1), Learner(policy, threads=1)
    of_whole = whole.update(an_update_batch(), SETTINGS.changed(micro_batch_tokens=10_000))
    of_parts = parts.update(an_update_batch(), SETTINGS.changed(micro_batch_tokens=1))
    gradients = gradients_of_first_step(parts._optimizer)
    for name, gradient in gradients_of_first_step(whole._optimizer).items():
        assert (gradient - gradients[name]).norm() <= 1e-5 * gradient.norm(), name
    assert of_parts["loss"] == pytest.approx(of_whole["loss"], rel=1e-5)


def test_the_update_weighs_every_reply_token_alike(make_policy: MakePolicy) -> None:
    """With the learner's own log-probabilities as the behaviour's, the loss is minus the mean advantage."""
    learner, sequences = Learner(make_policy(0), threads=1), two_turn_sequences()
    rows = learner.log_probabilities(sequences, 1.0, 1000)
    exact = [
        dataclasses.replace(sequence, log_probabilities=tuple(row))
        for sequence, row in zip(sequences, rows, strict=True)
    ]
    batch = UpdateBatch.from_turns(exact, [(float(index), -2.0) for index in range(len(exact))])
    advantages = [
        advantage
        for sequence, of_token in zip(batch.sequences, batch.advantages, strict=True)
        for advantage, mask in zip(of_token, sequence.mask, strict=True)
        if mask
    ]
    metrics = learner.update(batch, SETTINGS.changed(maximum_mismatch=1e-5))
    assert metrics["loss"] == pytest.approx(-sum(advantages) / len(advantages), rel=1e-4)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["clip_fraction_low"] == metrics["clip_fraction_high"] == 0.0
    assert metrics["mismatch"] < 1e-5
    assert metrics["tokens"] == len(advantages)
    assert metrics["entropy"] > 0
    assert metrics["gradient_norm"] > 0


def test_a_positive_advantage_makes_a_reply_likelier_and_a_negative_one_rarer(make_policy: MakePolicy) -> None:
    learner, sequence = Learner(make_policy(0), threads=1), two_turn_sequences()[2]
    before = learner.log_probabilities([sequence], 1.0, 1000)[0]
    exact = dataclasses.replace(sequence, log_probabilities=tuple(before))
    learner.update(UpdateBatch.from_turns([exact], [(1.0, -1.0)]), SETTINGS)
    after = learner.log_probabilities([sequence], 1.0, 1000)[0]
    change = [0.0, 0.0]
    for place, turn in enumerate(sequence.turn_of_token):
        if turn >= 0:
            change[turn] += after[place] - before[place]
    assert change[0] > 0 > change[1]


def test_advantages_of_turns_and_of_reply_tokens_land_on_the_same_tokens() -> None:
    sequence = TokenSequence((9, 3, 4, 9, 5), (-1, 0, 0, -1, 1), (0.0, -1.0, -1.0, 0.0, -1.0))
    of_turns = UpdateBatch.from_turns([sequence], [(2.0, -3.0)])
    assert of_turns.advantages.tolist() == [[0.0, 2.0, 2.0, 0.0, -3.0]]
    assert UpdateBatch.from_reply_tokens([sequence], [(2.0, 2.0, -3.0)]) == of_turns
    with pytest.raises(ValueError, match="found 2 advantages for 3 reply tokens"):
        UpdateBatch.from_reply_tokens([sequence], [(2.0, 2.0)])
    with pytest.raises(ValueError, match="one advantage per token"):
        UpdateBatch(SequenceBatch.of([sequence]), Ragged.of([[1.0]]))


def test_a_batch_without_a_reply_is_refused(make_policy: MakePolicy) -> None:
    silent = TokenSequence((9, 9), (-1, -1), (0.0, 0.0))
    with pytest.raises(ValueError, match="reply token"):
        UpdateBatch(SequenceBatch.of([silent]), Ragged.of([[0.0, 0.0]]))
    with pytest.raises(ValueError, match="reply token"):
        Learner(make_policy(0), threads=1).supervised_step([silent], learning_rate=1.0, micro_batch_tokens=10)


def test_mini_batches_deal_every_sequence_once_per_epoch_in_an_order_of_the_seed() -> None:
    batch = an_update_batch()
    settings = SETTINGS.changed(mini_batches=4, epochs=2, seed=5)
    parts = list(mini_batches(batch, settings))
    assert [len(part.sequences) for part in parts] == [2, 2, 1, 1] * 2
    for epoch in (parts[:4], parts[4:]):
        dealt = [sequence for part in epoch for sequence in part.sequences]
        assert sorted(map(repr, dealt)) == sorted(map(repr, batch.sequences))
    assert parts == list(mini_batches(batch, settings))
    assert parts != list(mini_batches(batch, settings.changed(seed=6)))


def test_a_mismatch_above_the_bound_stops_before_anything_is_trained(make_policy: MakePolicy) -> None:
    learner = Learner(make_policy(0), threads=1)
    before = weights(learner)
    stale = [
        dataclasses.replace(sequence, log_probabilities=tuple(2.0 * value for value in sequence.log_probabilities))
        for sequence in two_turn_sequences()
    ]
    batch = UpdateBatch.from_turns(stale, [(1.0, 1.0)] * len(stale))
    with pytest.raises(MismatchError, match=r"0\.1.*TW-engine-mismatch"):
        learner.update(batch, SETTINGS.changed(maximum_mismatch=0.1))
    assert learner.steps == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(learner).items())
    # Nor does its gradient linger into the next update.
    learner.update(an_update_batch(), SETTINGS)
    fresh = Learner(make_policy(0), threads=1)
    fresh.update(an_update_batch(), SETTINGS)
    assert all(torch.equal(tensor, weights(fresh)[name]) for name, tensor in weights(learner).items())


def test_a_log_probability_that_is_no_number_is_a_mismatch(make_policy: MakePolicy) -> None:
    sequence = dataclasses.replace(two_turn_sequences()[0], log_probabilities=(float("nan"),) * 12)
    with pytest.raises(MismatchError):
        Learner(make_policy(0), threads=1).update(UpdateBatch.from_turns([sequence], [(1.0, 1.0)]), SETTINGS)


def test_an_older_policys_batch_is_weighted_and_its_mismatch_measured_with_that_policy(make_policy: MakePolicy) -> None:
    settings = SETTINGS.changed(correction=ImportanceCorrection(kind="truncate", high=1e6), maximum_mismatch=1e-4)
    learner, sampler = (Learner(make_policy(0), threads=1) for _ in range(2))
    own = sampler.log_probabilities(two_turn_sequences(), 1.0, 40)
    sampled = [
        dataclasses.replace(sequence, log_probabilities=tuple(row))
        for sequence, row in zip(two_turn_sequences(), own, strict=True)
    ]
    batch = UpdateBatch.from_turns(sampled, [(1.0, -0.5)] * len(sampled))
    assert "lag_kl" not in learner.update(batch, settings), "it samples and learns with the same weights"
    with pytest.raises(MismatchError, match="TW-engine-mismatch"):
        learner.update(batch, settings)
    before = learner.log_probabilities(sampled, 1.0, 40)
    steps = learner.steps
    metrics = learner.update(batch, settings, sampler)
    log_ratios = [
        new - old
        for rows in zip(before, own, batch.sequences.rows(batch.sequences.mask), strict=True)
        for new, old, reply in zip(*rows, strict=True)
        if reply
    ]
    assert metrics["mismatch"] <= metrics["mismatch_maximum"] < 1e-6 < metrics["lag_kl"]
    mean = sum(math.exp(ratio) for ratio in log_ratios) / len(log_ratios)
    assert metrics["importance_weight_mean"] == pytest.approx(mean)
    assert metrics["lag_kl"] == pytest.approx(mean - 1.0 - sum(log_ratios) / len(log_ratios), abs=1e-9)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5), "the ratio follows the learner's own steps alone"
    # Neither a policy that did not sample, nor a correction that is left out, passes for the policy that did.
    with pytest.raises(MismatchError, match="TW-engine-mismatch"):
        learner.update(batch, settings, Learner(make_policy(1), threads=1))
    with pytest.raises(ValueError, match=r"give settings\.correction"):
        learner.update(batch, SETTINGS, sampler)
    assert learner.steps == steps + 1


def test_greedy_replies_have_no_update() -> None:
    message = refusal(UpdateSettings, {**SETTINGS.model_dump(), "temperature": 0.0})
    assert "temperature must be at least 0.01: greedy replies have no policy gradient; found 0.0" in message


@pytest.mark.parametrize("tied", [True, False])
def test_a_restored_learner_goes_on_to_the_bit(make_policy: MakePolicy, tmp_path: Path, tied: bool) -> None:
    settings = SETTINGS.changed(mini_batches=2, weight_decay=0.01, betas=(0.9, 0.95))
    learner = Learner(make_policy(0, tied=tied), threads=1)
    learner.update(an_update_batch(), settings)
    learner.save(tmp_path)
    restored = Learner.restore(tmp_path, threads=1)
    assert restored.steps == learner.steps == 2
    metrics, metrics_restored = (
        learner.update(an_update_batch(), settings),
        restored.update(an_update_batch(), settings),
    )
    assert metrics == metrics_restored
    for name, tensor in weights(learner).items():
        assert torch.equal(tensor, weights(restored)[name]), name
    without_moments = Learner(tmp_path, threads=1)
    without_moments.update(an_update_batch(), settings)
    assert any(not torch.equal(tensor, weights(without_moments)[name]) for name, tensor in weights(learner).items())


def test_a_learner_that_has_not_stepped_is_saved_and_restored(make_policy: MakePolicy, tmp_path: Path) -> None:
    Learner(make_policy(0), threads=1).save(tmp_path)
    assert Learner.restore(tmp_path, threads=1).steps == 0


def test_a_saved_policy_is_safetensors_and_a_configuration(make_policy: MakePolicy, tmp_path: Path) -> None:
    learner = Learner(make_policy(0), threads=1)
    learner.update(an_update_batch(), SETTINGS)
    learner.save(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}
    # vLLM reads every *.safetensors next to config.json as weights: the optimizer's moments must not be among them.
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["model.norm.weight"], learner.model.model.norm.weight)


def test_restoring_from_weights_alone_says_what_to_do(make_policy: MakePolicy) -> None:
    with pytest.raises(ArtifactError, match=r"optimizer/adamw.*TW-optimizer-state"):
        Learner.restore(make_policy(0), threads=1)


def test_the_learner_leaves_torchs_settings_as_they_were(make_policy: MakePolicy) -> None:
    learner = Learner(make_policy(0), threads=1)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    learner.update(an_update_batch(), SETTINGS)
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), state), "the engine samples from this generator"


def test_a_model_that_caps_its_logits_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    configuration = Gemma2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        final_logit_softcapping=0.01,
    )
    Gemma2ForCausalLM(configuration).save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="TW-nonlinear-logits"):
        Learner(tmp_path, threads=1)


def test_a_step_after_which_the_policy_cannot_compute_is_refused(make_policy: MakePolicy) -> None:
    learner = Learner(make_policy(0), threads=1)
    batch = UpdateBatch.from_turns(two_turn_sequences()[:1], [(1.0, -1.0)])
    with pytest.raises(NotFiniteError, match="TW-not-finite"):
        # Beyond the bounds of the configuration, hence not validated.
        learner.update(batch, SETTINGS.model_copy(update={"learning_rate": 1e39}))


def test_the_learning_rate_of_a_step_follows_the_steps_of_the_run_also_in_a_restored_learner(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    warmed_up = SETTINGS.changed(learning_rate_warmup=4, mini_batches=2)
    learner, constant = Learner(make_policy(0), threads=1), Learner(make_policy(0), threads=1)
    before = weights(learner)
    assert learner.update(an_update_batch(), SETTINGS.changed(learning_rate_warmup=4))["learning_rate"] == 0.25e-3
    constant.update(an_update_batch(), SETTINGS.changed(learning_rate=0.25e-3))
    assert all(torch.equal(weights(learner)[name], tensor) for name, tensor in weights(constant).items())
    assert any(not torch.equal(before[name], tensor) for name, tensor in weights(learner).items())
    learner.save(tmp_path)
    restored = Learner.restore(tmp_path, threads=1)
    assert restored.update(an_update_batch(), warmed_up)["learning_rate"] == 0.75e-3, "steps 2 and 3 of the run"
