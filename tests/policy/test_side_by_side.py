"""Sequences side by side in one row: what transformers computes of them padded, and the path that a card takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_samples import in_float64, micro_batch_of, relative_difference
from policy_samples import two_turn_sequences
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.policy import side_by_side
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.model import load_policy, trained_parameters
from turnwise.policy.reply_states import leaves_padding_out, padded_reply_states
from turnwise.policy.side_by_side import (
    SIDE_BY_SIDE,
    Boundaries,
    attend,
    can_lie_side_by_side,
    in_one_call,
    lies_side_by_side,
    side_by_side_reply_states,
)

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}
KNOWN: dict[str, PretrainedConfig] = {
    "Qwen2": Qwen2Config(**SHAPE),
    "Qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "Llama": LlamaConfig(**SHAPE),
}
Choose = Callable[[bool], None]


@pytest.fixture
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Whether models are loaded as on a card, and computed here."""
    return lambda chosen: monkeypatch.setattr(
        "turnwise.policy.model.can_lie_side_by_side", lambda model, device_type, *, compiled: chosen
    )


@pytest.mark.parametrize("lengths", [[17, 9, 2, 12], [8, 8], [5]], ids=str)
@pytest.mark.parametrize("name", KNOWN)
def test_states_and_gradients_are_those_of_the_padded_pass(name: str, lengths: list[int]) -> None:
    torch.manual_seed(0)
    model = in_float64(AutoModelForCausalLM.from_config(KNOWN[name], attn_implementation="sdpa").eval())
    states, gradients = [], []
    for forward in (padded_reply_states, side_by_side_reply_states):
        if forward is side_by_side_reply_states:
            model.set_attn_implementation(SIDE_BY_SIDE)
        states.append(forward(model, micro_batch_of(lengths)))
        model.zero_grad()
        (states[-1].sin() * torch.arange(1.0, 49.0)).sum().backward()
        gradients.append({each: found.grad for each, found in model.named_parameters() if found.grad is not None})
    assert torch.allclose(*states, rtol=1e-11, atol=1e-11)
    assert relative_difference(*gradients) < 1e-11


@pytest.mark.parametrize(
    "settings",
    [PLAIN, ModelSettings(gradient_checkpointing=True, adapter=Adapter(rank=2, alpha=4))],
    ids=["all weights", "an adapter, checkpointing"],
)
def test_a_learner_has_the_same_log_probabilities_and_takes_the_same_step(
    settings: ModelSettings, make_policy: Callable[..., Path], on_a_card: Choose
) -> None:
    found: list[Any] = []
    for chosen in (True, False):
        on_a_card(chosen)
        learner = Learner(make_policy(3), threads=1, model=settings)
        assert lies_side_by_side(learner.model) == chosen
        rows = learner.log_probabilities(two_turn_sequences(), 1.0, 100)
        batch = UpdateBatch.from_turns(two_turn_sequences(), [(1.0, -0.5)] * len(two_turn_sequences()))
        told = learner.update(
            batch, UpdateSettings(learning_rate=0.1, temperature=1.0, micro_batch_tokens=100, maximum_mismatch=1e9)
        )
        found.append((rows, told, trained_parameters(learner.model)))
    (ours, told, trained), (theirs, told_padded, trained_padded) = found
    assert abs(ours.values - theirs.values).max() / abs(theirs.values).max() < 1e-6
    assert told["padding_share"] == 0.0
    assert told["gradient_norm"] == pytest.approx(told_padded["gradient_norm"], rel=1e-5)
    assert trained.keys() == trained_padded.keys()


def test_models_of_known_decoders_lie_side_by_side_on_a_card_alone(
    monkeypatch: pytest.MonkeyPatch, make_policy: Callable[..., Path]
) -> None:
    with torch.device("meta"):
        known = AutoModelForCausalLM.from_config(KNOWN["Qwen2"])
        windowed = AutoModelForCausalLM.from_config(MistralConfig(**SHAPE, sliding_window=8))
    assert can_lie_side_by_side(known, "cuda", compiled=False)
    assert not can_lie_side_by_side(known, "cpu", compiled=False)
    assert not can_lie_side_by_side(windowed, "cuda", compiled=False)
    monkeypatch.setattr(side_by_side, "_has_kernel", lambda: False)
    assert not can_lie_side_by_side(known, "cuda", compiled=True), "each micro-batch would be compiled anew"
    assert not lies_side_by_side(load_policy(make_policy(0), PLAIN))


def test_a_saved_policy_does_not_name_the_attention(
    make_policy: Callable[..., Path], on_a_card: Choose, tmp_path: Path
) -> None:
    on_a_card(True)
    learner = Learner(make_policy(0), threads=1)
    assert leaves_padding_out(learner.model)
    learner.save(tmp_path)
    assert SIDE_BY_SIDE not in (tmp_path / "config.json").read_text()


def a_row() -> tuple[list[torch.Tensor], Boundaries]:
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(1, heads, 12, 16, generator=draw) for heads in (6, 2, 2)]
    return parts, Boundaries.of(torch.tensor([5, 1, 6]))


def test_where_torch_has_the_kernel_it_is_asked_once_for_all_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def kernel(
        query: Any, key: Any, value: Any, ends: Any, key_ends: Any, most: int, most_keys: int, **how: Any
    ) -> Any:
        """The documented meaning of `torch.nn.attention.varlen.varlen_attn`."""
        assert ends.tolist() == key_ends.tolist() == [0, 5, 6, 12] and ends.dtype == torch.int32
        assert (most, most_keys, how["window_size"], how["enable_gqa"]) == (6, 6, (-1, 0), True)
        calls.append(how)
        attended = []
        for begin, end in ((0, 5), (5, 6), (6, 12)):
            scores = torch.einsum("ihd,jhd->hij", query[begin:end], key[begin:end].repeat_interleave(3, 1))
            seen = torch.ones(end - begin, end - begin).tril().bool()
            weights = (scores * how["scale"]).masked_fill(~seen, -torch.inf).softmax(-1)
            attended.append(torch.einsum("hij,jhd->ihd", weights, value[begin:end].repeat_interleave(3, 1)))
        return torch.cat(attended)

    parts, boundaries = a_row()
    module = torch.nn.Module()
    module.num_key_value_groups, module.is_causal = 3, True  # type: ignore[assignment]
    one_by_one, _ = attend(module, *parts, None, boundaries=boundaries, scaling=0.25)
    monkeypatch.setattr(side_by_side, "takes_kernel", lambda query: True)
    monkeypatch.setattr(side_by_side, "varlen_attn", kernel)
    at_once, _ = attend(module, *parts, None, boundaries=boundaries, scaling=0.25)
    assert len(calls) == 1
    assert at_once.shape == one_by_one.shape == (1, 12, 6, 16)
    assert torch.allclose(at_once, one_by_one, atol=1e-6)


def test_torchs_kernel_takes_what_it_is_given_and_has_a_gradient() -> None:
    with FakeTensorMode():
        parts = [torch.empty(1, heads, 12, 64, dtype=torch.bfloat16, requires_grad=True) for heads in (6, 2, 2)]
        attended = in_one_call(*parts, Boundaries((5, 7), torch.empty(3, dtype=torch.int32)), 0.125)
        attended.sum().backward()
        assert attended.shape == (1, 12, 6, 64)
        assert [tuple(part.grad.shape) for part in parts if part.grad is not None] == [tuple(p.shape) for p in parts]
