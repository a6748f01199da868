"""The learner with a model that is held in other ways: an adapter, recomputed layers, bfloat16, logits in chunks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradient_samples import gradients_of_first_step, relative_difference
from policy_samples import two_turn_sequences
from refusals import refusal
from safetensors.torch import load_file

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.data.arrays import SequenceBatch
from turnwise.errors import ArtifactError
from turnwise.policy.adapter import ADAPTER_FILE, DESCRIPTION_FILE
from turnwise.policy.learner.learner import OPTIMIZER_FILE, Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

MakePolicy = Callable[..., Path]
ADAPTED = ModelSettings(adapter=Adapter(rank=4, alpha=8))
SETTINGS = UpdateSettings(
    learning_rate=1e-2, temperature=0.9, micro_batch_tokens=40, maximum_mismatch=10.0, mini_batches=2
)

needs_bfloat16 = pytest.mark.skipif(
    not {"avx512_bf16", "amx_tile"} & {name for name, has_it in torch.cpu.get_capabilities().items() if has_it},
    reason="this processor has no instructions for bfloat16",
)


def a_batch() -> UpdateBatch:
    sequences = two_turn_sequences()
    return UpdateBatch.from_turns(sequences, [(1.0 - index, 0.5 * index) for index in range(len(sequences))])


def state(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in learner.model.state_dict().items()}


def first_gradients(policy: Path, model: ModelSettings) -> dict[str, torch.Tensor]:
    """Of a loss without a clip, whose edge rounding would cross."""
    learner = Learner(policy, threads=1, model=model)
    chosen = SETTINGS.changed(loss="reinforce", mini_batches=1, maximum_gradient_norm=1e9)
    learner.update(a_batch(), chosen)
    return gradients_of_first_step(learner._optimizer)


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_goes_on_to_the_bit(make_policy: MakePolicy, tmp_path: Path, tied: bool) -> None:
    base = make_policy(0, tied=tied)
    learner = Learner(base, threads=1, model=ADAPTED)
    before = state(learner)
    learner.update(a_batch(), SETTINGS)
    changed = {name for name, tensor in state(learner).items() if not torch.equal(tensor, before[name])}
    assert len(changed) == 2 * 2 * 7 and all(".lora_" in name for name in changed), "all of the adapter, and no more"
    learner.save(tmp_path)
    restored = Learner.restore(tmp_path, threads=1, model=ADAPTED, base=base)
    assert restored.steps == learner.steps == 2
    assert learner.update(a_batch(), SETTINGS) == restored.update(a_batch(), SETTINGS)
    assert state(learner).keys() == state(restored).keys()
    assert all(torch.equal(tensor, state(restored)[name]) for name, tensor in state(learner).items())
    for name in ("first", "second"):
        (learner if name == "first" else restored).save(tmp_path / name)
    for file in ("config.json", DESCRIPTION_FILE, ADAPTER_FILE, OPTIMIZER_FILE):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_policy_that_an_adapter_began_with_is_its_model_with_the_adapter_off(
    make_policy: MakePolicy, checkpointing: bool
) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()
    model = ModelSettings(adapter=Adapter(rank=4, alpha=8), gradient_checkpointing=checkpointing)
    learner, loaded = Learner(policy, threads=1, model=model), Learner(policy, threads=1)
    at_the_start = learner.log_probabilities(sequences, 0.9, 40)
    learner.update(a_batch(), SETTINGS)
    before = state(learner)
    found = learner.reference_log_probabilities(sequences, 0.9, 40)
    assert found.tolist() == at_the_start.tolist() != learner.log_probabilities(sequences, 0.9, 40).tolist()
    assert found.values == pytest.approx(loaded.log_probabilities(sequences, 0.9, 40).values, abs=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(learner).items())
    assert learner.update(a_batch(), SETTINGS)["gradient_norm"] > 0, "the adapter is on again, and is trained"
    with pytest.raises(ValueError, match="by a learner with an adapter alone"):
        loaded.reference_log_probabilities(sequences, 0.9, 40)


def test_a_learner_without_an_adapter_does_not_take_the_optimizer_of_one(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    learner = Learner(make_policy(0), threads=1, model=ADAPTED)
    learner.update(a_batch(), SETTINGS)
    learner.save(tmp_path)
    with pytest.raises(ArtifactError, match="TW-optimizer-state"):
        Learner.restore(tmp_path, threads=1, base=make_policy(0))


def test_recomputed_layers_train_alike_to_the_bit(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    plain = Learner(policy, threads=1)
    recomputing = Learner(policy, threads=1, model=ModelSettings(gradient_checkpointing=True))
    for _ in range(2):
        assert plain.update(a_batch(), SETTINGS) == recomputing.update(a_batch(), SETTINGS)
    assert all(torch.equal(tensor, state(recomputing)[name]) for name, tensor in state(plain).items())


def test_an_adapter_in_recomputed_layers_has_the_same_gradient(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    plain, recomputed = (
        first_gradients(policy, ADAPTED.changed(gradient_checkpointing=checkpointing))
        for checkpointing in (False, True)
    )
    assert len(plain) == 2 * 2 * 7
    assert all(torch.equal(gradient, recomputed[name]) for name, gradient in plain.items())
    assert any(gradient.norm() > 0 for gradient in plain.values())


@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.1])
def test_logits_in_chunks_train_alike(make_policy: MakePolicy, entropy_coefficient: float) -> None:
    policy = make_policy(0)
    chosen = SETTINGS.changed(mini_batches=1, maximum_gradient_norm=1e9, entropy_coefficient=entropy_coefficient)
    whole, chunked = Learner(policy, threads=1), Learner(policy, threads=1, model=ModelSettings(logit_chunk_tokens=3))
    of_whole, of_chunked = whole.update(a_batch(), chosen), chunked.update(a_batch(), chosen)
    found, expected = (gradients_of_first_step(learner._optimizer) for learner in (chunked, whole))
    assert relative_difference(found, expected) < 1e-5
    assert of_chunked == pytest.approx(of_whole, rel=1e-5)


def test_micro_batches_that_count_computed_tokens_are_fewer_and_train_alike(make_policy: MakePolicy) -> None:
    policy, sequences = make_policy(0), [each for each in two_turn_sequences() for _ in range(4)]
    batch = UpdateBatch.from_turns(sequences, [(1.0 - index, 0.5 * index) for index in range(len(sequences))])
    chosen = SETTINGS.changed(loss="reinforce", mini_batches=1, maximum_gradient_norm=1e9)
    all_tokens, computed = (
        Learner(policy, threads=1, model=ModelSettings(counted_tokens=counted)) for counted in ("all", "computed")
    )
    adapted = Learner(policy, threads=1, model=ADAPTED.changed(counted_tokens="computed"))
    passes = [
        len(learner._lay_out(SequenceBatch.of(sequences), SETTINGS.micro_batch_tokens))
        for learner in (computed, all_tokens, adapted)
    ]
    assert passes[0] < passes[1] <= passes[2], "with an adapter every token is computed"
    for learner in (all_tokens, computed):
        learner.update(batch, chosen)
    expected, found = (gradients_of_first_step(learner._optimizer) for learner in (all_tokens, computed))
    assert 0.0 < relative_difference(found, expected) < 1e-5


@needs_bfloat16
@pytest.mark.parametrize("adapter", [None, Adapter(rank=4, alpha=8)])
def test_a_learner_in_bfloat16_follows_the_gradient_roughly_and_goes_on_to_the_bit(
    make_policy: MakePolicy, tmp_path: Path, adapter: Adapter | None
) -> None:
    policy, model = make_policy(0), ModelSettings(precision="bfloat16", adapter=adapter)
    rounded, exact = first_gradients(policy, model), first_gradients(policy, ModelSettings(adapter=adapter))
    assert 1e-4 < relative_difference(rounded, exact) < 0.05
    learner = Learner(policy, threads=1, model=model)
    learner.update(a_batch(), SETTINGS)
    learner.supervised_step(two_turn_sequences(), learning_rate=1e-3, micro_batch_tokens=40)
    learner.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in load_file(tmp_path / OPTIMIZER_FILE).values()} == {torch.float32}
    restored = Learner.restore(tmp_path, threads=1, model=model, base=None if adapter is None else policy)
    assert learner.update(a_batch(), SETTINGS) == restored.update(a_batch(), SETTINGS)
    assert all(torch.equal(tensor, state(restored)[name]) for name, tensor in state(learner).items())


def test_the_plain_settings_are_the_default(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    default, plain = Learner(policy, threads=1), Learner(policy, threads=1, model=PLAIN)
    assert default.update(a_batch(), SETTINGS) == plain.update(a_batch(), SETTINGS)


def test_a_chunk_of_nothing_is_refused() -> None:
    assert (
        refusal(ModelSettings, {"logit_chunk_tokens": 0})
        == "logit_chunk_tokens must be at least 1; found 0 [TW-option-range]"
    )
