"""A critic on the policy's trunk that learns along: both losses' gradients, what each step moves, and going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradient_samples import gradients_of_first_step, precise_learner, relative_difference
from policy_samples import two_turn_sequences
from pydantic import ValidationError

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.config.schema import CriticSection
from turnwise.data.arrays import TokenSequence
from turnwise.errors import MismatchError
from turnwise.policy.adapter import ADAPTER_FILE
from turnwise.policy.critic.critic import VALUE_HEAD_FILE, ValueBatch
from turnwise.policy.learner.learner import OPTIMIZER_FILE, Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

pytestmark = pytest.mark.kernels

MakePolicy = Callable[..., Path]
Gradients = dict[str, torch.Tensor]
CRITIC = CriticSection(
    learning_rate=1e-2, micro_batch_tokens=60, trunk="policy", coefficient=0.5, maximum_gradient_norm=1e9
)
ALONE = UpdateSettings(
    learning_rate=1e-3, temperature=0.75, micro_batch_tokens=40, maximum_mismatch=10.0, maximum_gradient_norm=1e9
)
JOINT = ALONE.changed(critic=CRITIC)
ADVANTAGES = [(1.0, -0.5), (0.0, 0.0), (-2.0, 0.25), (0.5, 0.5), (-0.125, -1.0), (1.5, 2.0)]
"""The second sequence has none: alone, the policy's loss says nothing of it."""


def a_batch(advantages: list[tuple[float, float]] = ADVANTAGES) -> UpdateBatch:
    """Values and returns are exact in float32."""
    sequences = two_turn_sequences()
    places = [range(sum(sequence.mask)) for sequence in sequences]
    values = [[((3 * place + row) % 5 - 2) / 4 for place in of_row] for row, of_row in enumerate(places)]
    returns = [[((place + 2 * row) % 7 - 2) / 4 for place in of_row] for row, of_row in enumerate(places)]
    return UpdateBatch.from_turns(sequences, advantages).with_values(values, returns)


def disturbed(learner: Learner) -> Learner:
    """A head that no longer says 0 everywhere."""
    assert learner.critic is not None
    made = torch.Generator().manual_seed(2)
    with torch.no_grad():
        weight = learner.critic.head.weight
        weight.copy_(torch.randn(weight.shape, generator=made))
        learner.critic.head.bias.fill_(0.25)
    return learner


def a_learner(policy: Path, model: ModelSettings = PLAIN) -> Learner:
    learner = Learner(policy, threads=1, model=model)
    learner.add_critic(policy)
    return disturbed(learner)


def a_precise_learner(policy: Path) -> Learner:
    learner = precise_learner(policy)
    learner.add_critic(policy)
    assert learner.critic is not None
    learner.critic.head.double()
    return disturbed(learner)


def gradients(learner: Learner) -> Gradients:
    assert learner.critic is not None
    return gradients_of_first_step(learner._optimizer) | gradients_of_first_step(learner.critic._optimizer)


def state(learner: Learner) -> dict[str, torch.Tensor]:
    assert learner.critic is not None
    tensors = learner.model.state_dict() | {
        f"head.{key}": each for key, each in learner.critic.head.state_dict().items()
    }
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def gradients_of_the_value_loss(policy: Path) -> Gradients:
    """Sequence by sequence, without padding: half the mean squared error over all targets, clipped, times 0.5."""
    learner, batch = a_precise_learner(policy), a_batch()
    assert learner.critic is not None and batch.values is not None and batch.returns is not None
    head, terms = learner.critic.head, []
    for sequence, old_values, returns in zip(batch.sequences, batch.values, batch.returns, strict=True):
        hidden = learner.model.base_model(input_ids=torch.tensor([sequence.tokens])).last_hidden_state[0]
        for place, mask in enumerate(sequence.mask):
            if mask:
                value = (head.weight @ hidden[place - 1] + head.bias).squeeze()
                near = old_values[place] + (value - old_values[place]).clamp(-0.2, 0.2)
                terms.append(torch.maximum((value - returns[place]) ** 2, (near - returns[place]) ** 2) / 2)
    (0.5 * torch.stack(terms).mean()).backward()
    trunk = {name: parameter.grad for name, parameter in learner.model.named_parameters()}
    found = trunk | {f"head.{name}": parameter.grad for name, parameter in head.named_parameters()}
    return {name: torch.zeros(1) if gradient is None else gradient for name, gradient in found.items()}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 10_000])
def test_the_trunks_gradient_is_the_sum_of_both_losses(
    make_policy: MakePolicy, tied: bool, micro_batch_tokens: int
) -> None:
    policy = make_policy(0, tied=tied)
    joint, alone = a_precise_learner(policy), precise_learner(policy)
    joint.update(a_batch(), JOINT.changed(micro_batch_tokens=micro_batch_tokens))
    alone.update(a_batch(), ALONE)
    of_values, of_policy = gradients_of_the_value_loss(policy), gradients_of_first_step(alone._optimizer)
    expected = {name: gradient + of_policy.get(name, 0.0) for name, gradient in of_values.items()}
    # The model's norms compute in float32 whatever is around them: a sum is rounded otherwise than its terms.
    assert relative_difference(gradients(joint), expected) < 1e-6
    for name in ("model.norm.weight", "head.weight", "head.bias"):
        assert torch.allclose(gradients(joint)[name], expected[name], rtol=1e-12, atol=1e-14), name
    trunk = "model.layers.0.mlp.up_proj.weight"
    assert of_values[trunk].norm() > 0.01 * of_policy[trunk].norm() > 0, "neither vanishes beside the other"
    if not tied:
        found, alone_in_it = ({"lm_head": each["lm_head.weight"]} for each in (gradients(joint), of_policy))
        assert relative_difference(found, alone_in_it) < 1e-12, "the value loss does not reach the output layer"


def test_a_sequence_without_an_advantage_teaches_values(make_policy: MakePolicy) -> None:
    learner = a_learner(make_policy(0))
    metrics = learner.update(a_batch([(0.0, 0.0)] * 6), JOINT)
    assert metrics["loss"] == 0.0 and metrics["gradient_norm"] > 0 and metrics["value_gradient_norm"] > 0
    assert metrics["objective"] == pytest.approx(0.5 * metrics["value_loss"], rel=1e-6)


def test_both_are_reported_as_they_are_alone(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    learner, alone, judge = a_learner(policy), Learner(policy, threads=1), a_learner(policy).critic
    assert judge is not None
    batch = a_batch()
    taught = batch.value_batch()
    metrics, of_policy = learner.update(batch, JOINT), alone.update(batch, ALONE)
    of_values = judge.update(taught, CRITIC, seed=0)
    of_values["value_gradient_norm"] *= 0.5  # the coefficient
    own = {"gradient_norm", "objective", "padding_share"}
    assert metrics.keys() == of_policy.keys() | of_values.keys() | {"objective"}
    for name in of_policy.keys() - own:
        assert metrics[name] == pytest.approx(of_policy[name], rel=1e-5), name
    for name, value in of_values.items():
        assert metrics[name] == pytest.approx(value, rel=1e-5), name
    assert metrics["objective"] == pytest.approx(metrics["loss"] + 0.5 * metrics["value_loss"], rel=1e-5)


def test_learning_along_explains_the_returns(make_policy: MakePolicy) -> None:
    learner, sequences = Learner(make_policy(0), threads=1), two_turn_sequences()
    learner.add_critic(make_policy(0))
    assert learner.critic is not None
    returns = [[float(turn == 0) for turn in each.turn_of_token if turn >= 0] for each in sequences]
    explained = []
    for _ in range(40):
        batch = UpdateBatch.from_turns(sequences, [(0.0, 0.0)] * 6)
        values = learner.critic.values(sequences, 1000)
        chosen = JOINT.changed(learning_rate=3e-3, critic=CRITIC.changed(clip=None))
        explained.append(learner.update(batch.with_values(values, returns), chosen)["explained_variance"])
    assert explained[0] == 0.0 < 0.9 < explained[-1]


@pytest.mark.parametrize("model", [PLAIN, ModelSettings(adapter=Adapter(rank=2, alpha=4))])
def test_policy_and_critic_go_on_to_the_bit(make_policy: MakePolicy, tmp_path: Path, model: ModelSettings) -> None:
    settings = JOINT.changed(mini_batches=2, epochs=2, weight_decay=0.01)
    learner = a_learner(make_policy(0), model)
    learner.update(a_batch(), settings)
    learner.save(tmp_path)
    whole = model.adapter is None
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"] * whole
    restored = Learner.restore(tmp_path, threads=1, model=model, base=None if whole else make_policy(0))
    restored.add_critic(tmp_path)
    assert restored.critic is not None and restored.critic.steps == 4
    assert learner.update(a_batch(), settings) == restored.update(a_batch(), settings)
    assert all(torch.equal(tensor, state(restored)[name]) for name, tensor in state(learner).items())
    learner.save(tmp_path / "first")
    restored.save(tmp_path / "second")
    for file in ("model.safetensors" if whole else ADAPTER_FILE, OPTIMIZER_FILE, VALUE_HEAD_FILE):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_recomputed_layers_learn_both_alike_to_the_bit(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    plain, recomputing = a_learner(policy), a_learner(policy, ModelSettings(gradient_checkpointing=True))
    assert plain.update(a_batch(), JOINT) == recomputing.update(a_batch(), JOINT)
    assert all(torch.equal(tensor, state(recomputing)[name]) for name, tensor in state(plain).items())


def test_a_mismatch_leaves_no_gradient_behind(make_policy: MakePolicy) -> None:
    learner = a_learner(make_policy(0))
    before = state(learner)
    with pytest.raises(MismatchError):
        learner.update(a_batch(), JOINT.changed(maximum_mismatch=1e-6))
    assert learner.critic is not None
    assert all(parameter.grad is None for parameter in (*learner.model.parameters(), *learner.critic.head.parameters()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(learner).items())


def test_values_follow_their_turn() -> None:
    """Two turns of two reply tokens each."""
    sequence = TokenSequence((9, 3, 4, 9, 5, 6), (-1, 0, 0, -1, 1, 1), (0.0, -1.0, -1.0, 0.0, -1.0, -1.0))
    values, returns = [(0.1, 0.2, 0.3, 0.4)], [(1.0, 2.0, 3.0, 4.0)]
    batch = UpdateBatch.from_turns([sequence], [(1.0, 2.0)]).with_values(values, returns)
    assert batch.value_batch() == ValueBatch.of([sequence], values, returns)
    turns = batch.turn_by_turn().value_batch()
    assert turns == ValueBatch.of(turns.sequences, [(0.1, 0.2), (0.3, 0.4)], [(1.0, 2.0), (3.0, 4.0)])


def test_settings_a_batch_and_a_learner_that_do_not_belong_together_are_refused(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    bare = UpdateBatch.from_turns(two_turn_sequences(), ADVANTAGES)
    with pytest.raises(ValueError, match="give them with with_values"):
        a_learner(policy).update(bare, JOINT)
    for learner, settings in ((a_learner(policy), ALONE), (Learner(policy, threads=1), JOINT)):
        with pytest.raises(ValueError, match="must learn along, and no other"):
            learner.update(a_batch(), settings)
    with pytest.raises(ValidationError, match="must stand on the policy's trunk; found trunk 'own'"):
        ALONE.changed(critic=CRITIC.changed(trunk="own", coefficient=None))
    with pytest.raises(ValueError, match="returns must have one number per reply token"):
        bare.with_values([[0.0] * sum(each.mask) for each in bare.sequences], [[0.0]] * 6)


def test_an_update_without_a_critic_has_no_value_metrics(make_policy: MakePolicy) -> None:
    metrics = Learner(make_policy(0), threads=1).update(a_batch(), ALONE)
    assert not [name for name in metrics if "value" in name]
