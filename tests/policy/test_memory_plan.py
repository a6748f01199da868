"""The plan of a model's memory: numbers worked by hand, and activations compared with what autograd saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from tests.policy.published_shapes import QWEN, write_published
from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.config.schema import Policy
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy.adapter import add_adapter
from turnwise.policy.dimensions import Dimensions, dimensions_in, dimensions_of
from turnwise.policy.engines import fused
from turnwise.policy.freed_memory import LARGE_POLICY
from turnwise.policy.memory_plan import TOKENS_AT_ONCE, EngineMemory, ModelMemory
from turnwise.policy.reply_states import packed_reply_states, padded_reply_states
from turnwise.policy.scoring import MicroBatch, lay_out
from turnwise.policy.sizes import count

SMALL = Dimensions(
    shapes={"embed_tokens.weight": (10, 4), "0.q_proj.weight": (4, 4), "0.down_proj.weight": (4, 8)},
    vocabulary=10,
    hidden=4,
    layers=2,
    heads=2,
    key_value_heads=1,
    head_dimension=2,
    feed_forward=8,
    head_norms=False,
    known=True,
)
ADAPTER = Adapter(rank=1, alpha=1)


def test_a_trained_weight_takes_sixteen_bytes_and_a_frozen_one_those_of_its_precision() -> None:
    plain = ModelMemory(SMALL, PLAIN, "cpu")  # 40 + 16 + 32 weights
    assert (plain.weights, plain.gradients, plain.moments) == (352, 352, 704)
    adapted = ModelMemory(SMALL, ModelSettings(precision="bfloat16", adapter=ADAPTER), "cpu")
    # An adapter of rank 1 on the two linear layers has (4 + 4) + (4 + 8) weights.
    assert (adapted.weights, adapted.gradients, adapted.moments) == (2 * 88 + 80, 80, 160)


def test_activations_are_those_of_all_layers_and_with_checkpointing_their_inputs_and_one_layer() -> None:
    plain = ModelMemory(SMALL, PLAIN, "cpu")
    # A token in a layer: 16 x 4 + 12 x 4 + 12 x 2 + 16 x 8 bytes. Joined weights in a layer: 4 x (4 + 2 x 2) numbers.
    assert plain.activations(10) == 2 * (264 * 10 + 4 * 32)
    assert plain.scoring(10) == 264 * 10 + 4 * 32
    checkpointed = ModelMemory(SMALL, ModelSettings(gradient_checkpointing=True), "cpu")
    assert checkpointed.activations(10) == 2 * 4 * 4 * 10 + 2 * 264 * 10 + 4 * 32


def test_freed_memory_counts_on_the_cpu_where_the_forward_pass_is_not_our_plain_one() -> None:
    checkpointed = ModelSettings(gradient_checkpointing=True)
    assert ModelMemory(SMALL, PLAIN, "cpu").fragmentation(10) == 0
    assert ModelMemory(SMALL, checkpointed, "cuda").fragmentation(10) == 0
    large = replace(SMALL, shapes={"embed_tokens.weight": (LARGE_POLICY + 1, 1)})
    assert ModelMemory(large, checkpointed, "cpu").fragmentation(10) == 0, "its tensors are returned at once"
    # Half of the activations: 2 layers of 264 x 10 bytes, and joined weights of 4 x 32.
    assert ModelMemory(large, PLAIN, "cpu").fragmentation(10) == 2 * (264 * 10 + 4 * 32) // 2
    # 1.3 times the activations of the test above: 2 x 4 x 4 x 10 + 2 x 264 x 10 + 4 x 32 bytes.
    assert ModelMemory(SMALL, checkpointed, "cpu").fragmentation(10) == round(1.3 * 5728)


def test_activations_on_a_card_are_those_of_transformers() -> None:
    rounded = ModelMemory(SMALL, ModelSettings(precision="bfloat16"), "cuda")
    # A token in a layer: 26 x 4 + 4 x 4 + 4 x 2 + 8 x 8 bytes. Linear weights in a layer: 2 x 4 x (4 + 2) + 3 x 4 x 8.
    assert rounded.activations(10) == 2 * (192 * 10 + 2 * 144)


def test_logits_are_three_tensors_of_a_chunk_and_the_gradient_of_the_output_layer() -> None:
    plain = ModelMemory(SMALL, ModelSettings(logit_chunk_tokens=8), "cpu")
    assert plain.logits(6) == 3 * 4 * 6 * 10 + 4 * 40
    assert plain.logits(6, entropy_gradient=True) == 4 * 4 * 6 * 10 + 4 * 40
    assert plain.logits(100) == 3 * 4 * 8 * 10 + 2 * 4 * 40
    assert plain.logits(100, training=False) == 3 * 4 * 8 * 10


def test_an_engines_memory_is_its_weights_and_its_cache() -> None:
    embedded = EngineMemory(SMALL, "embedded", "cpu", "bfloat16", 100, most_episodes=256, episodes=40)
    # In float32 on the CPU. Two layers of keys and values of width 2, 64 slots of 128 tokens.
    assert (embedded.weights, embedded.cache) == (4 * 88, 2 * 2 * 2 * 4 * 64 * 128)
    vllm = EngineMemory(SMALL, "vllm", "cpu", "float32", 100, most_episodes=256, episodes=40)
    assert (vllm.weights, vllm.cache) == (4 * (88 + 40), 64 * 2**20)
    rounded = EngineMemory(SMALL, "vllm", "cpu", "bfloat16", 100, most_episodes=256, episodes=40)
    assert rounded.weights == 2 * (88 + 40)
    on_card = EngineMemory(SMALL, "vllm", "cuda", "bfloat16", 100, most_episodes=256, episodes=40)
    assert on_card.weights == 2 * 88
    # Graphs for 1, 2, 4, 31 multiples of 8 and 256 sequences, in two layers.
    assert (on_card.graphs, vllm.graphs) == (35 * 2 * (2**20 * 4 // 10), 0)
    # An embedding of 40 numbers: as it comes and as it is to be, or as it is to be and packed.
    assert (on_card.handing_over, vllm.handing_over, embedded.handing_over) == ((4 + 2) * 40, 2 * 4 * 40, 0)


def test_an_engine_computes_as_many_tokens_at_once_as_the_plan_says() -> None:
    assert TOKENS_AT_ONCE["embedded"] == fused.TOKENS_AT_ONCE


@pytest.mark.parametrize(("size", "parameters"), [("0.5B", 494_032_768), ("3B", 3_085_938_688), ("7B", 7_615_616_512)])
def test_the_published_shapes_have_the_published_numbers_of_parameters(
    size: str, parameters: int, tmp_path: Path
) -> None:
    found = dimensions_in(write_published(tmp_path, size))
    assert count(found.shapes) == parameters
    assert (found.vocabulary, found.layers) == (QWEN[size]["vocab_size"], QWEN[size]["num_hidden_layers"])
    assert found.known and not found.head_norms


def test_the_dimensions_of_a_policy_from_scratch_are_those_of_the_model_that_is_made(tmp_path: Path) -> None:
    from turnwise.policy.architecture import create_policy

    sizes = {"hidden": 64, "layers": 2, "heads": 2, "feed_forward": 96}
    create_policy(
        tmp_path,
        vocabulary_size=300,
        context_length=64,
        end_token=1,
        pad_token=0,
        seed=0,
        key_value_heads=2,
        **sizes,
    )
    planned = dimensions_of(
        Policy.model_validate(
            {"model": "scratch", "seed": 0, "vocabulary": 300, "initial_deviation": 0.02, "tied_embeddings": True}
            | sizes
        )
    )
    made = dimensions_in(tmp_path)
    assert planned is not None and count(planned.shapes) == count(made.shapes)
    assert {**vars(planned), "shapes": None} == {**vars(made), "shapes": None}


def model_of(kind: str, layers: int) -> PreTrainedModel:
    configuration = AutoConfig.for_model(
        kind,
        vocab_size=65,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(configuration).eval()
    return model


def dimensions_like(model: PreTrainedModel, folder: Path) -> Dimensions:
    model.config.save_pretrained(folder)
    return dimensions_in(folder)


def micro_batch() -> MicroBatch:
    """Four sequences of 56 to 64 tokens, of which the last half is replies. No two begin alike."""
    lengths = (64, 62, 60, 56)
    sequences = [
        TokenSequence((length,) * length, (-1,) * (length // 2) + (0,) * (length - length // 2), (0.0,) * length)
        for length in lengths
    ]
    return lay_out(SequenceBatch.of(sequences), 10_000, 0, torch.device("cpu"))[0]


def saved_bytes(model: PreTrainedModel, forward: Any, precision: str) -> int:
    """The bytes that autograd keeps of a forward pass: distinct storages other than the parameters'."""
    kept: dict[int, torch.Tensor] = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    rounding = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), rounding:
        states = forward(model, micro_batch())
    assert states.requires_grad
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in parameters)


def of_one_layer(kind: str, settings: ModelSettings, forward: Any, folder: Path) -> tuple[int, int]:
    """What a further layer adds to what autograd saves, and to the plan."""
    saved, planned = [], []
    for layers in (3, 4):
        model = model_of(kind, layers)
        if settings.adapter is not None:
            model = model.to(torch.bfloat16 if settings.precision == "bfloat16" else torch.float32)
            add_adapter(model, settings.adapter)
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
            for module in model.modules():
                if isinstance(module, GradientCheckpointingLayer):
                    module.training = True
        saved.append(saved_bytes(model, forward, settings.precision))
        # transformers' forward pass is the card's; on the CPU it is that of what ours does not compute.
        device = "cpu" if forward is packed_reply_states else "cuda"
        planned.append(ModelMemory(dimensions_like(model_of(kind, layers), folder), settings, device).activations(256))
    return saved[1] - saved[0], planned[1] - planned[0]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize(
    ("settings", "forward"),
    [
        (PLAIN, packed_reply_states),
        (PLAIN, padded_reply_states),
        (ModelSettings(precision="bfloat16"), packed_reply_states),
        (ModelSettings(precision="bfloat16"), padded_reply_states),
        (ModelSettings(adapter=Adapter(rank=2, alpha=2)), padded_reply_states),
        (ModelSettings(adapter=Adapter(rank=2, alpha=2), precision="bfloat16"), padded_reply_states),
        (ModelSettings(gradient_checkpointing=True), packed_reply_states),
        (ModelSettings(gradient_checkpointing=True), padded_reply_states),
    ],
    ids=lambda value: getattr(value, "__name__", None) or ",".join(sorted(value.model_fields_set)) or "plain",
)
def test_a_layer_keeps_what_the_plan_says_and_at_most_a_seventh_less(
    kind: str, settings: ModelSettings, forward: Any, tmp_path: Path
) -> None:
    saved, planned = of_one_layer(kind, settings, forward, tmp_path)
    assert 0.86 * planned <= saved <= 1.02 * planned
