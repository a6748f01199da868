"""Loading a policy: what the settings do to it, what of it is trained, and what is handed on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_samples import two_turn_sequences
from refusals import refusal
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.config.schema import Section
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.policy.adapted import write_whole_policy
from turnwise.policy.adapter import ADAPTER_FILE, DESCRIPTION_FILE, base_name, has_adapter, restore_adapter
from turnwise.policy.learner.learner import Learner
from turnwise.policy.model import (
    ALIGNMENT,
    load_policy,
    load_trunk,
    merged_weights,
    require_device,
    save_policy,
    trained_parameters,
)

MakePolicy = Callable[..., Path]
ADAPTED = ModelSettings(adapter=Adapter(rank=2, alpha=6, target_modules=("q_proj", "down_proj"), seed=3))
TOKENS = torch.tensor([[5, 9, 30, 7, 11, 200], [8, 8, 100, 4, 90, 6]])


def states_and_gradients(model: PreTrainedModel) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The trunk's last hidden state, and the trained parameters' gradients of a sum that weighs all of it."""
    trained = trained_parameters(model)
    states = model.base_model(input_ids=TOKENS, use_cache=False).last_hidden_state
    weights = torch.linspace(-1.0, 1.0, states.numel()).reshape(states.shape)
    gradients = torch.autograd.grad((states * weights).sum(), list(trained.values()), allow_unused=True)
    return states.detach(), {name: found for name, found in zip(trained, gradients, strict=True) if found is not None}


def disturbed(model: PreTrainedModel) -> PreTrainedModel:
    """An adapter that does something: its B begins at zero."""
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in trained_parameters(model).items():
            if ".lora_B." in name:
                parameter.copy_(torch.randn(parameter.shape, generator=made) * 0.1)
    return model


@pytest.mark.parametrize("settings", [PLAIN, ADAPTED], ids=["plain", "adapted"])
def test_a_model_that_was_saved_before_is_saved_with_the_same_bytes_as_one_that_was_not(
    make_policy: MakePolicy, tmp_path: Path, settings: ModelSettings
) -> None:
    def changed() -> PreTrainedModel:
        model = load_policy(make_policy(0), settings)
        with torch.no_grad():
            for parameter in trained_parameters(model).values():
                parameter.mul_(1.5).add_(0.01)
        return model

    again = load_policy(make_policy(0), settings)
    for name in ("before", "again"):  # folders that are not there yet
        save_policy(again, tmp_path / name, settings)
        again.load_state_dict(changed().state_dict())
    save_policy(changed(), tmp_path / "once", settings)
    files = {path.relative_to(tmp_path / "once") for path in (tmp_path / "once").rglob("*.*")}
    assert files == {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.*")}
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "once" / file).read_bytes(), file


def test_the_plain_settings_give_the_plain_model(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    model = load_policy(policy, PLAIN)
    expected = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32, attn_implementation="sdpa").eval()
    assert torch.equal(model(input_ids=TOKENS).logits, expected(input_ids=TOKENS).logits)
    assert list(trained_parameters(model)) == [name for name, _ in expected.named_parameters()]
    assert not model.training


def test_recomputed_layers_give_the_same_gradient_to_the_bit_and_keep_less(make_policy: MakePolicy) -> None:
    policy = make_policy(0)

    def kept_and_gradients(settings: ModelSettings) -> tuple[int, torch.Tensor, dict[str, torch.Tensor]]:
        kept: list[int] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor.numel())
            return tensor

        model = load_policy(policy, settings)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.base_model(input_ids=TOKENS, use_cache=False)
        return (sum(kept), *states_and_gradients(model))

    kept, states, gradients = kept_and_gradients(PLAIN)
    recomputed_kept, recomputed_states, recomputed = kept_and_gradients(ModelSettings(gradient_checkpointing=True))
    assert recomputed_kept < 0.3 * kept
    assert torch.equal(states, recomputed_states)
    assert gradients.keys() == recomputed.keys() and len(gradients) > 10
    assert all(torch.equal(gradients[name], recomputed[name]) for name in gradients)


def test_recomputation_does_not_turn_dropout_on(tmp_path: Path, make_policy: MakePolicy) -> None:
    """transformers recomputes in training mode only, in which a model with dropout would be another one every time."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((make_policy(0) / name).read_bytes())
    configuration = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**configuration, "attention_dropout": 0.5}))
    states, _ = states_and_gradients(load_policy(tmp_path, ModelSettings(gradient_checkpointing=True)))
    expected, _ = states_and_gradients(load_policy(tmp_path, PLAIN))
    assert torch.equal(states, expected)


def test_an_adapter_begins_as_the_policy_and_is_all_that_is_trained(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    model, plain = load_policy(policy, ADAPTED), load_policy(policy, PLAIN)
    assert torch.equal(model(input_ids=TOKENS).logits, plain(input_ids=TOKENS).logits)
    expected = [
        f"model.layers.{layer}.{block}.{target}.lora_{part}.default.weight"
        for layer in range(2)
        for block, target in (("self_attn", "q_proj"), ("mlp", "down_proj"))
        for part in "AB"
    ]
    assert list(trained_parameters(model)) == expected
    shapes = [tuple(parameter.shape) for parameter in trained_parameters(model).values()]
    # q_proj: 64 to 2 heads of 32; down_proj: 128 to 64.
    assert shapes == [(2, 64), (64, 2), (2, 128), (64, 2)] * 2


def test_the_seed_decides_an_adapter_and_nothing_else_does(make_policy: MakePolicy) -> None:
    policy, adapter = make_policy(0), ADAPTED.adapter
    assert adapter is not None
    torch.manual_seed(9)
    state = torch.get_rng_state()
    first = trained_parameters(load_policy(policy, ADAPTED))
    assert torch.equal(torch.get_rng_state(), state), "the engine samples from this generator"
    torch.rand(5)
    again = trained_parameters(load_policy(policy, ADAPTED))
    other = trained_parameters(load_policy(policy, ModelSettings(adapter=adapter.changed(seed=4))))
    name = "model.layers.1.mlp.down_proj.lora_A.default.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


def test_a_merged_weight_is_that_of_the_equation(make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    model = disturbed(load_policy(policy, ADAPTED))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged, plain = dict(merged_weights(model)), load_policy(policy, PLAIN).state_dict()
    assert merged.keys() == plain.keys()
    assert "lm_head.weight" in merged, "an engine's copy of a tied output layer would go stale"
    for name, tensor in merged.items():
        owner = name.removesuffix(".weight")
        if owner.rpartition(".")[2] in ("q_proj", "down_proj"):
            low = before[f"{owner}.lora_A.default.weight"].double()
            high = before[f"{owner}.lora_B.default.weight"].double()
            expected = plain[name].double() + 6.0 / 2 * high @ low
            assert (tensor - expected).abs().max() <= 1e-7 * expected.abs().max()
            assert not torch.equal(tensor, plain[name])
        else:
            assert torch.equal(tensor, plain[name]), name
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), "left as it was"


def test_a_merged_policy_says_what_the_adapted_one_says(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy = make_policy(0)
    model = disturbed(load_policy(policy, ADAPTED))
    save_policy(model, tmp_path / "adapter", ADAPTED)
    write_whole_policy(policy, tmp_path / "adapter", tmp_path / "merged")
    merged = load_policy(tmp_path / "merged", PLAIN)
    assert torch.allclose(merged(input_ids=TOKENS).logits, model(input_ids=TOKENS).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_policy_is_a_policy_like_any_other(make_policy: MakePolicy, tmp_path: Path, tied: bool) -> None:
    policy, merged = make_policy(0, tied=tied), tmp_path / "merged"
    model = disturbed(load_policy(policy, ADAPTED))
    save_policy(model, tmp_path, ADAPTED)
    write_whole_policy(policy, tmp_path, merged)
    assert [path.name for path in merged.glob("*.safetensors")] == ["model.safetensors"], "what an engine reads"
    assert (merged / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    plain, saved = (load_file(folder / "model.safetensors") for folder in (policy, merged))
    assert {name: tensor.shape for name, tensor in saved.items()} == {name: x.shape for name, x in plain.items()}
    of_learner = dict(merged_weights(model))
    assert all(torch.equal(tensor, of_learner[name]) for name, tensor in saved.items()), "the learner's own, to the bit"
    learner = Learner(merged, threads=1)
    assert learner.log_probabilities(two_turn_sequences(), 1.0, 500)


def test_an_adapter_is_saved_without_the_weights_that_it_belongs_to(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy, merged = make_policy(0), tmp_path / "merged"
    model = disturbed(load_policy(policy, ADAPTED))
    save_policy(model, tmp_path, ADAPTED, "the base")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"config.json", "generation_config.json", ADAPTER_FILE, DESCRIPTION_FILE}
    assert has_adapter(tmp_path) and not has_adapter(policy) and base_name(tmp_path) == "the base"
    assert (tmp_path / ADAPTER_FILE).stat().st_size < 0.1 * (policy / "model.safetensors").stat().st_size
    write_whole_policy(policy, tmp_path, merged)
    assert files - {ADAPTER_FILE, DESCRIPTION_FILE} | {"model.safetensors"} == {path.name for path in merged.iterdir()}


def test_peft_reads_a_saved_adapter(make_policy: MakePolicy, tmp_path: Path) -> None:
    from peft import PeftModel

    policy = make_policy(0)
    model = disturbed(load_policy(policy, ADAPTED))
    save_policy(model, tmp_path, ADAPTED)
    read = PeftModel.from_pretrained(load_policy(policy, PLAIN), str((tmp_path / ADAPTER_FILE).parent))
    assert torch.equal(read(input_ids=TOKENS).logits, model(input_ids=TOKENS).logits)


def test_saving_writes_the_same_bytes_every_time(make_policy: MakePolicy, tmp_path: Path) -> None:
    for name in ("once", "again"):
        save_policy(disturbed(load_policy(make_policy(0), ADAPTED)), tmp_path / name, ADAPTED)
    files = [path.relative_to(tmp_path / "once") for path in (tmp_path / "once").rglob("*") if path.is_file()]
    assert len(files) >= 4
    for file in files:
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def restored_policy(folder: Path, settings: ModelSettings, base: Path) -> PreTrainedModel:
    model = load_policy(base, settings)
    assert settings.adapter is not None
    restore_adapter(model, folder, settings.adapter)
    return model


def stepped(model: PreTrainedModel, optimizer: torch.optim.Optimizer, steps: int) -> PreTrainedModel:
    for _ in range(steps):
        optimizer.zero_grad()
        (model(input_ids=TOKENS).logits.log_softmax(-1)[..., 3]).sum().neg().backward()
        optimizer.step()
    return model


def test_parameters_begin_where_an_engine_takes_them_in_place(make_policy: MakePolicy) -> None:
    for settings in (ModelSettings(), ModelSettings(adapter=Adapter(rank=2, alpha=4))):
        model = load_policy(make_policy(1), settings)
        assert all(parameter.data_ptr() % ALIGNMENT == 0 for parameter in model.parameters())


def test_a_restored_adapter_goes_on_to_the_bit(make_policy: MakePolicy, tmp_path: Path) -> None:
    """Plain gradient descent, so that nothing but the weights could differ."""

    def descend(model: PreTrainedModel) -> torch.optim.Optimizer:
        return torch.optim.SGD(trained_parameters(model).values(), lr=0.01)

    model = disturbed(load_policy(make_policy(0), ADAPTED))
    stepped(model, descend(model), 3)
    save_policy(model, tmp_path, ADAPTED)
    restored = restored_policy(tmp_path, ADAPTED, make_policy(0))
    stepped(model, descend(model), 3)
    stepped(restored, descend(restored), 3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, restored.state_dict()[name]), name


def test_a_policy_without_an_adapter_is_restored_as_it_is_loaded(make_policy: MakePolicy, tmp_path: Path) -> None:
    model = load_policy(make_policy(0), PLAIN)
    save_policy(model, tmp_path, PLAIN)
    assert not (tmp_path / ADAPTER_FILE).exists()
    restored = load_policy(tmp_path, PLAIN).state_dict()
    assert all(torch.equal(tensor, restored[name]) for name, tensor in model.state_dict().items())
    assert (tmp_path / "config.json").read_bytes() == (make_policy(0) / "config.json").read_bytes()


@pytest.mark.parametrize("file", [ADAPTER_FILE, DESCRIPTION_FILE])
def test_restoring_without_the_adapters_files_says_what_to_do(
    make_policy: MakePolicy, tmp_path: Path, file: str
) -> None:
    save_policy(load_policy(make_policy(0), ADAPTED), tmp_path, ADAPTED)
    (tmp_path / file).unlink()
    with pytest.raises(ArtifactError, match=rf"{file}.*TW-incomplete-policy"):
        restored_policy(tmp_path, ADAPTED, make_policy(0))


@pytest.mark.parametrize(
    "changed",
    [
        Adapter(rank=3, alpha=6, target_modules=("q_proj", "down_proj")),
        Adapter(rank=2, alpha=5, target_modules=("q_proj", "down_proj")),
        Adapter(rank=2, alpha=6),
    ],
)
def test_an_adapter_does_not_go_on_as_another(make_policy: MakePolicy, tmp_path: Path, changed: Adapter) -> None:
    save_policy(load_policy(make_policy(0), ADAPTED), tmp_path, ADAPTED)
    with pytest.raises(ConfigurationError, match="TW-adapter-changed"):
        restored_policy(tmp_path, ModelSettings(adapter=changed), make_policy(0))


@pytest.mark.parametrize(
    ("section", "values", "reason"),
    [
        (Adapter, {"rank": 0, "alpha": 1}, "rank must be at least 1; found 0"),
        (Adapter, {"rank": 1, "alpha": 0}, "alpha must be at least 1; found 0"),
        (Adapter, {"rank": 1, "alpha": 1, "target_modules": ()}, "target_modules must name a linear layer"),
        (ModelSettings, {"precision": "float16"}, "precision must be one of float32, bfloat16; found 'float16'"),
    ],
)
def test_impossible_settings_are_refused(section: type[Section], values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(section, values)


@pytest.mark.parametrize("target", ["query", "lm_head", "embed_tokens", "input_layernorm"])
def test_an_adapter_on_what_is_no_linear_layer_of_the_trunk_is_refused(make_policy: MakePolicy, target: str) -> None:
    settings = ModelSettings(adapter=Adapter(rank=1, alpha=1, target_modules=(target,)))
    with pytest.raises(ConfigurationError, match=rf"down_proj.*gate_proj.*{target}.*TW-adapter-modules"):
        load_policy(make_policy(0), settings)


needs_bfloat16 = pytest.mark.skipif(
    not {"avx512_bf16", "amx_tile"} & {name for name, has_it in torch.cpu.get_capabilities().items() if has_it},
    reason="this processor has no instructions for bfloat16",
)


@needs_bfloat16
def test_in_bfloat16_the_arithmetic_is_rounded_and_what_is_trained_is_not(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    settings, policy = ModelSettings(precision="bfloat16"), make_policy(0)
    model = load_policy(policy, settings)
    states, gradients = states_and_gradients(model)
    expected, _ = states_and_gradients(load_policy(policy, PLAIN))
    assert 1e-4 < (states - expected).abs().max() < 0.2
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(gradient.dtype == torch.float32 for gradient in gradients.values())
    # A step that bfloat16 would round away.
    weight = model.base_model.layers[0].mlp.up_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight += 1e-6
    assert (weight - before).mean().item() == pytest.approx(1e-6, rel=0.1)
    save_policy(model, tmp_path, settings)
    assert load_file(tmp_path / "model.safetensors")["model.norm.weight"].dtype == torch.float32
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16", "what an engine computes in"


@needs_bfloat16
@pytest.mark.parametrize("tied", [True, False])
def test_in_bfloat16_only_frozen_weights_are_held_in_it(make_policy: MakePolicy, tmp_path: Path, tied: bool) -> None:
    settings, policy = ADAPTED.changed(precision="bfloat16", gradient_checkpointing=True), make_policy(0, tied=tied)
    model = disturbed(load_policy(policy, settings))
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if ".lora_" in name else torch.bfloat16), name
    _, gradients = states_and_gradients(model)
    assert len(gradients) == 8 and all(gradient.norm() > 0 for gradient in gradients.values())
    save_policy(model, tmp_path, settings)
    restored = restored_policy(tmp_path, settings, policy)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, restored.state_dict()[name]), name
    write_whole_policy(policy, tmp_path, tmp_path / "merged")
    whole, of_learner = load_file(tmp_path / "merged" / "model.safetensors"), dict(merged_weights(model))
    assert all(torch.equal(tensor, of_learner[name]) for name, tensor in whole.items()), "of the rounded weights"
    assert all(tensor.dtype == torch.float32 for tensor in whole.values())
    assert (tmp_path / "merged" / "model.safetensors").stat().st_size == pytest.approx(
        (policy / "model.safetensors").stat().st_size, rel=0.01
    ), "a tied output layer is written once"


def test_a_processor_without_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    with pytest.raises(ConfigurationError, match="TW-no-bfloat"):
        require_device(ModelSettings(precision="bfloat16"), "cpu")
    require_device(PLAIN, "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused(make_policy: MakePolicy) -> None:
    with pytest.raises(ConfigurationError, match="TW-no-cuda"):
        load_policy(make_policy(0), PLAIN, "cuda")


def test_a_critics_trunk_has_no_adapter(make_policy: MakePolicy) -> None:
    with pytest.raises(ConfigurationError, match="TW-critic-adapter"):
        load_trunk(make_policy(0), ADAPTED, "cpu")


def test_without_a_compiler_compiled_layers_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch._inductor.cpp_builder import cpp_compiler_search

    monkeypatch.setenv("PATH", str(tmp_path))
    cpp_compiler_search.cache_clear()
    with pytest.raises(ConfigurationError, match="TW-missing-program"):
        require_device(ModelSettings(compiled=True), "cpu")
    cpp_compiler_search.cache_clear()


@pytest.fixture
def _compilers_end() -> Iterator[None]:
    """End the threads that torch keeps for the next compilation."""
    from torch._inductor.async_compile import AsyncCompile

    yield
    if AsyncCompile.pool.cache_info().currsize:
        AsyncCompile.pool().shutdown()
        AsyncCompile.pool.cache_clear()


@pytest.mark.needs("g++")
@pytest.mark.usefixtures("_compilers_end")
def test_compiled_layers_compute_the_same_though_an_engine_turned_the_compiler_off(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._dynamo.utils import counters

    # What other processes compiled, with other kernels perhaps, lies in a folder that all share.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    policy, settings = make_policy(0), ModelSettings(compiled=True, gradient_checkpointing=True)
    # By torch's own patches: what monkeypatch puts back it deletes from torch's settings, which then lack it.
    unsearched = torch._inductor.config.patch({"cpp.vec_isa_ok": True})  # else it tries each instruction set
    turned_off = torch._dynamo.config.patch(disable=True)  # as vLLM's engine leaves it
    with unsearched, turned_off:
        counters.clear()
        states, gradients = states_and_gradients(load_policy(policy, settings))
        assert counters["stats"]["unique_graphs"] == 1, "one graph for both layers"
        expected_states, expected = states_and_gradients(load_policy(policy, PLAIN))
        assert torch._dynamo.config.disable, "left as it was"
    assert torch.allclose(states, expected_states, atol=1e-5)
    for name, gradient in expected.items():
        assert (gradients[name] - gradient).norm() <= 1e-4 * gradient.norm(), name


def test_a_published_temperature_without_sampling_does_not_keep_a_policy_from_being_saved(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    published = shutil.copytree(make_policy(0), tmp_path / "published")
    values = json.loads((published / "generation_config.json").read_text())
    (published / "generation_config.json").write_text(json.dumps({**values, "temperature": 0.7, "top_p": 0.8}))
    save_policy(load_policy(published, PLAIN), tmp_path / "saved", PLAIN)
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == values["eos_token_id"] and not {"temperature", "top_p"} & saved.keys()
