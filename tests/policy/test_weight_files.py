"""A folder whose weights are in another form, or do not fit its configuration, is refused before anything computes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
)

from turnwise.errors import ConfigurationError
from turnwise.policy.weight_files import require_finite_weights, require_fitting_weights, require_weights_form

MakePolicy = Callable[..., Path]
Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"


def refused(folder: Path, ask: Callable[..., None] = require_fitting_weights) -> str:
    arguments = (folder, str(folder)) if ask is require_weights_form else (folder,)
    with pytest.raises(ConfigurationError) as caught:
        ask(*arguments)
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and str(folder) in said
    return said


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def configure(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def prefixed(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name}


def with_more(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: torch.zeros(2, 2)}


@pytest.mark.parametrize("tied", [True, False])
def test_what_save_pretrained_writes_fits(make_policy: MakePolicy, tied: bool) -> None:
    require_fitting_weights(make_policy(0, tied=tied))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (prefixed("_orig_mod."), ["_orig_mod.model.", "torch.compile"]),
        (prefixed("module."), ["module.model.", "DataParallel"]),
        (prefixed("_fsdp_wrapped_module."), ["FSDP"]),
        (prefixed("base_model.model."), ["merge_and_unload"]),
        (prefixed("policy."), ["policy.model.", "of one model"]),
        (without("layers.1."), ["are missing (model.layers.1.", "..."]),
        (without("model.norm"), ["1 of ", "is missing (model.norm.weight)"]),
        (with_more("score.weight"), ["1 is unexpected (score.weight)", "another head"]),
        (with_more("v_head.summary.weight"), ["another head"]),
        (with_more("model.layers.0.self_attn.q_proj.lora_A.weight"), ["an adapter's tensors"]),
        (
            lambda tensors: {name.removeprefix("model."): tensor for name, tensor in tensors.items()},
            ["(embed_tokens.weight", "AutoModelForCausalLM"],
        ),
        (
            lambda tensors: {**tensors, "model.norm.weight": torch.ones(5)},
            ["1 has another shape (model.norm.weight is 5 and not ", "another model's"],
        ),
    ],
)
def test_weights_of_other_names_or_shapes_are_refused_with_the_first_of_them(
    make_policy: MakePolicy, change: Callable[[Tensors], Tensors], says: list[str]
) -> None:
    said = refused(rewrite(make_policy(0), change))
    assert all(part in said for part in says), said


def test_an_output_layer_that_is_missing_is_refused_unless_it_is_the_embedding(make_policy: MakePolicy) -> None:
    assert "(lm_head.weight): save it by AutoModelForCausalLM" in refused(
        rewrite(make_policy(0, tied=False), without("lm_head"))
    )
    require_fitting_weights(rewrite(make_policy(0), without("lm_head")))


def test_a_tied_output_layer_that_was_saved_all_the_same_is_taken(make_policy: MakePolicy) -> None:
    folder = rewrite(
        make_policy(0), lambda tensors: {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    )
    require_fitting_weights(folder)


def test_rotations_that_older_libraries_saved_are_no_weights(make_policy: MakePolicy) -> None:
    require_fitting_weights(rewrite(make_policy(0), with_more("model.layers.0.self_attn.rotary_emb.inv_freq")))


@pytest.mark.parametrize("other", [AutoModelForSequenceClassification, AutoModelForTokenClassification])
def test_a_classifier_is_no_language_model(make_policy: MakePolicy, tmp_path: Path, other: Any) -> None:
    other.from_pretrained(make_policy(0)).save_pretrained(tmp_path)
    assert "with another head" in refused(tmp_path)
    configure(tmp_path, architectures=["Qwen3ForCausalLM"])
    assert "score" in refused(tmp_path)


def test_a_configuration_that_names_no_quantisation_is_of_plain_weights(make_policy: MakePolicy) -> None:
    require_fitting_weights(configure(make_policy(0), quantization_config=None))


def test_quantised_weights_are_refused(make_policy: MakePolicy) -> None:
    assert "quantised (awq)" in refused(configure(make_policy(0), quantization_config={"quant_method": "awq"}))
    assert "quantised (awq)" in refused(configure(make_policy(0), quantization_config="awq"))

    def eight_bits(tensors: Tensors) -> Tensors:
        return {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items()}

    assert "is F8_E4M3, of quantised weights" in refused(rewrite(make_policy(0), eight_bits))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_no_finite_number_is_refused_and_named(make_policy: MakePolicy, value: float) -> None:
    def spoil(tensors: Tensors) -> Tensors:
        tensors["model.norm.weight"][1] = value
        return tensors

    folder = make_policy(0)
    require_finite_weights(folder)
    assert "model.norm.weight has some that are not a number" in refused(rewrite(folder, spoil), require_finite_weights)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_fit(make_policy: MakePolicy, precision: torch.dtype) -> None:
    require_fitting_weights(
        rewrite(make_policy(0), lambda tensors: {name: tensor.to(precision) for name, tensor in tensors.items()})
    )


def test_a_missing_part_is_named_and_a_part_that_no_index_names_is_not_read(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    AutoModelForCausalLM.from_pretrained(make_policy(0)).save_pretrained(tmp_path, max_shard_size="60KB")
    require_fitting_weights(tmp_path)
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    (tmp_path / "model-00001-of-00099.safetensors").write_bytes(parts[0].read_bytes())
    require_fitting_weights(tmp_path)
    parts[1].unlink()
    assert f"{parts[1].name} among them" in refused(tmp_path)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    ).save_pretrained(tmp_path)
    return tmp_path


def test_of_other_architectures_transformers_says_what_fits(
    gpt2: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_fitting_weights(gpt2)
    require_fitting_weights(
        rewrite(gpt2, lambda tensors: {name.removeprefix("transformer."): each for name, each in tensors.items()})
    )
    said = refused(rewrite(gpt2, without("ln_f")))
    assert "GPT2LMHeadModel" in said and "(transformer.ln_f" in said
    experts = tmp_path_factory.mktemp("experts")
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    MixtralForCausalLM(MixtralConfig(**sizes, **heads)).save_pretrained(experts)
    require_fitting_weights(experts)  # a file has a tensor for each expert, the model one for all


def trained(folder: Path) -> Path:
    (folder / "checkpoint-9").mkdir()
    (folder / "checkpoint-10").mkdir()
    (folder / "checkpoint-9" / WEIGHTS).write_bytes(b"")
    (folder / WEIGHTS).rename(folder / "checkpoint-10" / WEIGHTS)
    (folder / "training_args.bin").touch()
    (folder / "tokenizer.json").write_text("{}")
    return folder


def adapter(folder: Path) -> Path:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "lab/base"}')
    return folder


def only(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / WEIGHTS).rename(folder / name)
        return folder

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (only("pytorch_model.bin"), ["pickled weights, pytorch_model.bin", "AutoModelForCausalLM.from_pretrained("]),
        (only("pytorch_model-00001-of-00002.bin"), ["pickled weights"]),
        (only("consolidated.00.pth"), ["another library"]),
        (only("weights.pt"), ["pickled weights, weights.pt"]),
        (only("model-q4.gguf"), ["a GGUF, model-q4.gguf: set policy.model to ", "/model-q4.gguf"]),
        (only("tf_model.h5"), ["TensorFlow's weights"]),
        (only("flax_model.msgpack"), ["Flax's weights"]),
        (only("model.onnx"), ["inference alone"]),
        (only("policy.safetensors"), ["weights under another name, policy.safetensors"]),
        (only("optimizer.pt"), ["found no weights"]),
        (only("model-00001-of-00002.safetensors"), ["model.safetensors.index.json beside files"]),
        (trained, ["weights in checkpoint-10 of 2: set policy.model to ", "and copy config.json, tokenizer.json"]),
        (adapter, ["an adapter of lab/base beside them"]),
        (lambda folder: only("optimizer.pt")(adapter(folder)), ["an adapter of lab/base alone", "merge_and_unload()"]),
    ],
)
def test_weights_in_another_form_are_named_with_what_to_do(
    make_policy: MakePolicy, make: Callable[[Path], Path], says: list[str]
) -> None:
    folder = make_policy(0)
    require_weights_form(folder, str(folder))
    said = refused(make(folder), require_weights_form)
    assert all(part in said for part in says), said


def test_known_architectures_are_judged_without_torch_and_transformers(make_policy: MakePolicy) -> None:
    program = (
        "import sys; from pathlib import Path; from turnwise.policy import weight_files as files\n"
        "files.require_weights_form(Path(sys.argv[1]), 'named'); files.require_fitting_weights(Path(sys.argv[1]))\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, str(make_policy(0))], check=True)
