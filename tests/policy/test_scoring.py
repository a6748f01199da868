"""Chunked scores: the numbers of the equations, the gradients of the plain path, and the memory of one chunk."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import two_turn_sequences
from torch.utils._python_dispatch import TorchDispatchMode

from turnwise.config.model_settings import ModelSettings
from turnwise.data.arrays import SequenceBatch
from turnwise.policy.learner.learner import Learner
from turnwise.policy.model import load_policy
from turnwise.policy.reply_states import reply_states
from turnwise.policy.scoring import lay_out, score, score_replies


def test_the_scores_are_those_of_the_equations() -> None:
    # Logits log 1, log 2, log 5 of weights (1, 2, 5) / 8.
    weight = torch.tensor([[math.log(1)], [math.log(2)], [math.log(5)]], dtype=torch.float64)
    states, targets = torch.ones(2, 1, dtype=torch.float64), torch.tensor([2, 0])
    chosen, entropy = score(states, weight, None, targets, chunk_tokens=1)
    assert chosen.tolist() == pytest.approx([math.log(5 / 8), math.log(1 / 8)], abs=1e-15)
    by_hand = -(1 / 8 * math.log(1 / 8) + 2 / 8 * math.log(2 / 8) + 5 / 8 * math.log(5 / 8))  # 0.900256
    assert entropy.tolist() == pytest.approx([by_hand, by_hand], abs=1e-15)
    assert by_hand == pytest.approx(0.900256, abs=1e-6)
    # At half the temperature the weights are squared: (1, 4, 25) / 30.
    chosen, entropy = score(states, weight, None, targets, temperature=0.5, chunk_tokens=5)
    assert chosen.tolist() == pytest.approx([math.log(25 / 30), math.log(1 / 30)], abs=1e-15)
    # A bias of log 2 on the first entry makes it 2 of 9.
    bias = torch.tensor([math.log(2), 0.0, 0.0], dtype=torch.float64)
    chosen, _ = score(states, weight, bias, targets, chunk_tokens=2)
    assert chosen.tolist() == pytest.approx([math.log(5 / 9), math.log(2 / 9)], abs=1e-15)


def plain(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by torch's own functions, with all logits at once."""
    log_distribution = (torch.nn.functional.linear(states, weight, bias) / temperature).log_softmax(-1)
    chosen = log_distribution.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen, -(log_distribution.exp() * log_distribution).sum(-1)


def inputs(replies: int, hidden: int, vocabulary: int, *, biased: bool) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(replies + vocabulary)
    shapes = [(replies, hidden), (vocabulary, hidden), *([(vocabulary,)] if biased else [])]
    return [torch.randn(shape, dtype=torch.float64, generator=made, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("objective", ["log-probabilities", "entropies", "both"])
@settings(max_examples=10)
@given(st.integers(1, 20), st.sampled_from([0.5, 1.0, 1.7]))
def test_gradients_are_those_of_the_plain_path_for_any_chunk(
    biased: bool, objective: str, chunk_tokens: int, temperature: float
) -> None:
    tensors = inputs(11, 5, 17, biased=biased)
    states, weight, bias = tensors[0], tensors[1], tensors[2] if biased else None
    targets = torch.arange(11) * 3 % 17
    weights = torch.linspace(-1.0, 2.0, 11, dtype=torch.float64)

    def loss(chosen: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        of_chosen = (chosen.exp() * weights).sum() if objective != "entropies" else 0.0
        return of_chosen + ((entropy * weights.flip(0)).sum() if objective != "log-probabilities" else 0.0)

    chunked = score(
        states, weight, bias, targets, temperature=temperature, chunk_tokens=chunk_tokens, entropy_gradient=True
    )
    at_once = plain(states, weight, bias, targets, temperature)
    for found, expected in zip(chunked, at_once, strict=True):
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(loss(*chunked), tensors)
    for found, expected in zip(gradients, torch.autograd.grad(loss(*at_once), tensors), strict=True):
        assert (found - expected).norm() <= 1e-12 * expected.norm()


def test_gradients_agree_with_finite_differences() -> None:
    tensors = inputs(4, 3, 6, biased=True)
    targets = torch.tensor([0, 5, 2, 2])

    def scored(*three: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return score(*three, targets, temperature=0.8, chunk_tokens=3, entropy_gradient=True)

    assert torch.autograd.gradcheck(scored, tensors)


@pytest.mark.parametrize("chunk_tokens", [2, 4])
def test_entropies_have_a_gradient_only_where_it_is_asked_for(chunk_tokens: int) -> None:
    states, weight = inputs(4, 3, 6, biased=False)
    targets = torch.tensor([0, 1, 2, 3])
    assert not score(states, weight, None, targets, chunk_tokens=chunk_tokens)[1].requires_grad
    assert score(states, weight, None, targets, chunk_tokens=chunk_tokens, entropy_gradient=True)[1].requires_grad


def test_in_float32_scores_and_gradients_are_those_of_the_plain_path_to_a_millionth() -> None:
    tensors = [tensor.detach().float().requires_grad_() for tensor in inputs(9, 6, 40, biased=False)]
    targets = torch.arange(9) * 3
    gradients = []
    for chosen, entropy in (score(*tensors, None, targets, chunk_tokens=9), plain(*tensors, None, targets, 1.0)):
        gradients.append((chosen.detach(), entropy.detach(), *torch.autograd.grad(chosen.square().sum(), tensors)))
    for found, expected in zip(*gradients, strict=True):
        assert (found - expected).norm() <= 1e-6 * expected.norm()


def test_a_frozen_output_layer_gets_no_gradient() -> None:
    states, weight = inputs(4, 3, 6, biased=False)
    weight.requires_grad_(False)
    score(states, weight, None, torch.tensor([0, 1, 2, 3]), chunk_tokens=2)[0].sum().backward()
    assert weight.grad is None
    assert states.grad is not None and states.grad.norm() > 0


class LargestTensor(TorchDispatchMode):
    """Records how many elements the largest tensor has that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def largest_forward_and_backward(compute: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> tuple[int, int]:
    """Elements of the largest tensor that is made, and of the largest that is kept for the backward pass."""
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        chosen, entropy = compute()
        (chosen.sum() + entropy.sum()).backward()
    return largest.elements, max(kept)


def test_the_logits_of_the_whole_batch_never_exist() -> None:
    replies, hidden, vocabulary, chunk = 96, 4, 500, 3
    states, weight = inputs(replies, hidden, vocabulary, biased=False)
    targets = torch.arange(replies)
    made, kept = largest_forward_and_backward(
        lambda: score(states, weight, None, targets, chunk_tokens=chunk, entropy_gradient=True)
    )
    assert made == max(chunk * vocabulary, hidden * vocabulary) == 2000
    assert kept == hidden * vocabulary, "the output layer itself; no logits"
    made, kept = largest_forward_and_backward(lambda: plain(states, weight, None, targets, 1.0))
    assert made == kept == replies * vocabulary == 48000, "the plain path is seen to make them"


def test_without_a_gradient_nothing_is_kept() -> None:
    states, weight = inputs(6, 3, 8, biased=False)
    with torch.no_grad():
        chosen, entropy = score(states, weight, None, torch.arange(6), chunk_tokens=4)
    assert not chosen.requires_grad and not entropy.requires_grad


def test_a_models_replies_are_scored_as_the_learner_scores_them(make_policy: Callable[..., Path]) -> None:
    policy, sequences = make_policy(3), two_turn_sequences()
    expected, expected_entropies = Learner(policy, threads=1).scores(sequences, 0.7, 1000)
    model = load_policy(policy, ModelSettings())
    for micro_batch in lay_out(SequenceBatch.of(sequences), 30, 0, torch.device("cpu")):
        states = reply_states(model, micro_batch)
        chosen, entropies = score_replies(model, states, micro_batch.targets, temperature=0.7, chunk_tokens=5)
        places = zip(micro_batch.rows.tolist(), (micro_batch.columns + 1).tolist(), strict=True)
        for (row, column), value, spread in zip(places, chosen.tolist(), entropies.tolist(), strict=True):
            member = micro_batch.members[row]
            assert value == pytest.approx(expected[member][column], abs=1e-5)
            assert spread == pytest.approx(expected_entropies[member][column], abs=1e-5)


def test_logits_in_bfloat16_are_used_in_float32(make_policy: Callable[..., Path]) -> None:
    model = load_policy(make_policy(3), ModelSettings())
    (micro_batch,) = lay_out(SequenceBatch.of(two_turn_sequences()), 1000, 0, torch.device("cpu"))
    states = reply_states(model, micro_batch)
    exact, _ = score_replies(model, states, micro_batch.targets, temperature=1.0, chunk_tokens=8)
    rounded, _ = score_replies(
        model, states, micro_batch.targets, temperature=1.0, chunk_tokens=8, dtype=torch.bfloat16
    )
    assert rounded.dtype == torch.float32
    assert 0.0 < (rounded - exact).abs().max() < 0.05
    rounded.sum().backward()
    gradient = model.get_output_embeddings().weight.grad
    assert gradient is not None and gradient.dtype == torch.float32 and gradient.norm() > 0


def test_an_empty_micro_batch_has_empty_scores() -> None:
    states, weight = inputs(2, 3, 8, biased=False)
    chosen, entropy = score(states[:0], weight, None, torch.arange(0), chunk_tokens=4)
    assert chosen.shape == entropy.shape == (0,)


@pytest.mark.parametrize(("temperature", "chunk", "reason"), [(0.0, 4, "above 0; found 0.0"), (1.0, 0, "found 0")])
def test_a_temperature_or_a_chunk_of_nothing_is_refused(temperature: float, chunk: int, reason: str) -> None:
    states, weight = inputs(2, 3, 8, biased=False)
    with pytest.raises(ValueError, match=reason):
        score(states, weight, None, torch.tensor([0, 1]), temperature=temperature, chunk_tokens=chunk)
