"""The packed forward pass computes what transformers' own computes, and its gradient, for the models that it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradient_samples import in_float64, micro_batch_of, relative_difference
from policy_samples import two_turn_sequences
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from turnwise.config.model_settings import Adapter, ModelSettings
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy.learner.learner import Learner
from turnwise.policy.model import TrunkForward, load_policy
from turnwise.policy.reply_states import (
    _RmsNorm,
    _Rotation,
    is_packable,
    packed_reply_states,
    padded_reply_states,
    reply_states,
)
from turnwise.policy.scoring import MicroBatch, lay_out

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}
PACKABLE: dict[str, PretrainedConfig] = {
    "Qwen3, heads wider than hidden / heads": Qwen3Config(**SHAPE, head_dim=16),
    "Qwen3, one layer": Qwen3Config(**{**SHAPE, "num_hidden_layers": 1}, head_dim=8),
    "Qwen2, with biases": Qwen2Config(**SHAPE),
    "Llama": LlamaConfig(**SHAPE),
    "Llama, with biases and scaled rotations": LlamaConfig(
        **SHAPE,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    ),
}
OTHERS: dict[str, PretrainedConfig] = {
    "a window of attention": MistralConfig(**SHAPE, sliding_window=8),
    "another activation": LlamaConfig(**SHAPE, hidden_act="gelu"),
    "another architecture": GPT2Config(vocab_size=300, n_embd=48, n_layer=1, n_head=2),
}


def model_of(config: PretrainedConfig) -> PreTrainedModel:
    """A model in float64, whose norms are not all ones."""
    torch.manual_seed(0)
    model = in_float64(AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval())
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return model


def beginning_alike() -> MicroBatch:
    """Two groups of sequences that share a prompt; some share more, one begins another, and two are equal."""
    rows = [[7, 8, 9, *row] for row in ([3, 4, 5, 6, 4], [3, 4, 5, 9], [3, 4], [3, 9, 4], [6, 5, 4], [6, 5, 4])]
    rows += [[9, 8, 7, 3], [9, 8, 7, 4, 4, 4, 5], [9, 8]]
    sequences = [TokenSequence(tuple(row), (-1, *[0] * (len(row) - 1)), (0.0,) * len(row)) for row in rows]
    (micro_batch,) = lay_out(SequenceBatch.of(sequences), 10_000, 0, torch.device("cpu"), packed=True)
    return micro_batch


MICRO_BATCHES: dict[str, Callable[[], MicroBatch]] = {
    "padded": lambda: micro_batch_of([17, 9, 2, 12]),
    "of equal length": lambda: micro_batch_of([8, 8, 8]),
    "alone": lambda: micro_batch_of([5]),
    "beginning alike": beginning_alike,
}


@pytest.mark.parametrize("of", MICRO_BATCHES)
@pytest.mark.parametrize("name", PACKABLE)
def test_states_and_gradients_are_those_of_transformers(name: str, of: str) -> None:
    model, micro_batch = model_of(PACKABLE[name]), MICRO_BATCHES[of]()
    assert is_packable(model)
    states, gradients = [], []
    for forward in (packed_reply_states, padded_reply_states):
        states.append(forward(model, micro_batch))
        model.zero_grad()
        (states[-1].sin() * torch.arange(1.0, 49.0)).sum().backward()
        gradients.append({each: found.grad for each, found in model.named_parameters() if found.grad is not None})
    assert torch.allclose(*states, rtol=1e-11, atol=1e-11)
    assert relative_difference(*gradients) < 1e-11


@pytest.mark.parametrize("name", PACKABLE)
def test_in_bfloat16_states_and_gradients_are_as_near_to_the_exact_ones_as_those_of_transformers(name: str) -> None:
    precise, micro_batch = model_of(PACKABLE[name]), beginning_alike()
    exact = states_and_gradients(precise, micro_batch, packed_reply_states)
    model = AutoModelForCausalLM.from_config(PACKABLE[name], attn_implementation="sdpa").eval()
    model.load_state_dict(precise.state_dict())
    model.base_model.forward = TrunkForward(model.base_model.forward, ModelSettings(precision="bfloat16"), "cpu")
    assert is_packable(model)
    packed, padded = (
        [relative_difference({"": found}, {"": right}) for found, right in zip(each, exact, strict=True)]
        for each in (
            states_and_gradients(model, micro_batch, forward) for forward in (packed_reply_states, padded_reply_states)
        )
    )
    for of_packed, of_padded in zip(packed, padded, strict=True):
        assert 1e-4 < of_packed < 1.5 * of_padded


def states_and_gradients(
    model: PreTrainedModel, micro_batch: MicroBatch, forward: Callable[[PreTrainedModel, MicroBatch], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The states, and all gradients of a sum over them in one row."""
    model.zero_grad()
    states = forward(model, micro_batch)
    (states.sin() * torch.arange(1.0, 49.0)).sum().backward()
    gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
    return states.detach().double(), torch.cat(gradients).double()


def test_in_float32_log_probabilities_are_those_of_transformers_to_a_millionth(
    make_policy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, sequences = Learner(make_policy(3), threads=1), two_turn_sequences()
    found = learner.log_probabilities(sequences, 1.0, 100)
    monkeypatch.setattr("turnwise.policy.forward_pass.reply_states", padded_reply_states)
    expected = learner.log_probabilities(sequences, 1.0, 100)
    assert abs(found.values - expected.values).max() / abs(expected.values).max() < 1e-6


def test_the_backward_passes_agree_with_finite_differences() -> None:
    draw = torch.Generator().manual_seed(0)
    states, weight, angle = (
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((4, 2, 6), (2, 6), (4, 1, 6))
    )
    states.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: _RmsNorm.apply(x, w, 1e-3), (states, weight.requires_grad_()))
    assert torch.autograd.gradcheck(lambda x: _Rotation.apply(x, *rotation(angle)), (states,))


def rotation(angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `rotations` gives them: both halves turn by the same angle, and the sine's first half is negated."""
    half = angle[..., :3]
    return torch.cat([half.cos(), half.cos()], -1), torch.cat([-half.sin(), half.sin()], -1)


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_left_to_transformers(name: str) -> None:
    model, micro_batch = model_of(OTHERS[name]), micro_batch_of([9, 4])
    assert not is_packable(model)
    assert torch.equal(reply_states(model, micro_batch), padded_reply_states(model, micro_batch))


def test_an_adapter_and_compiled_layers_are_left_to_transformers(make_policy: Callable[..., Path]) -> None:
    policy = make_policy(0)
    assert is_packable(load_policy(policy, ModelSettings()))
    assert is_packable(load_policy(policy, ModelSettings(gradient_checkpointing=True)))
    adapter = Adapter(rank=2, alpha=4, target_modules=("q_proj",), seed=0)
    assert not is_packable(load_policy(policy, ModelSettings(adapter=adapter)))


def test_recomputed_layers_have_the_same_gradient_to_the_bit(make_policy: Callable[..., Path]) -> None:
    policy, gradients = make_policy(0), []
    for checkpointing in (False, True):
        model = load_policy(policy, ModelSettings(gradient_checkpointing=checkpointing))
        packed_reply_states(model, micro_batch_of([17, 9, 2])).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.base_model.parameters()])
    for found, expected in zip(*gradients, strict=True):
        assert found is not None and expected is not None and torch.equal(found, expected)
