"""The model that a learner trains: loading it, selecting its trained parameters, and saving it.

`load_policy` is a drop-in for `AutoModelForCausalLM.from_pretrained`: it returns the same transformers model, with the
settings applied to it in place.

* **Precision.** In `bfloat16` the trunk computes under autocast. Trained parameters and their optimizer state stay in
  float32: bfloat16 has 8 significant bits, so a step of 1e-6 on a weight of 0.02 would vanish. Frozen weights are held
  in bfloat16.
* **Gradient checkpointing.** A layer keeps its input and is recomputed in the backward pass: same gradient to the bit,
  a third more arithmetic. transformers does so only in training mode, which would also turn dropout on; so the mode is
  set on the layers themselves, not on their submodules.
* **A low-rank adapter** (LoRA): see `turnwise.policy.adapter`.
* **torch.compile**, one graph for all layers, for dynamic shapes.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from turnwise.config.model_settings import Adapter, ModelSettings
from turnwise.errors import ConfigurationError
from turnwise.policy.adapter import ADAPTER_NAME, add_adapter, on_cpu, save_adapter
from turnwise.policy.side_by_side import SIDE_BY_SIDE, can_lie_side_by_side
from turnwise.policy.slices import whole

ALIGNMENT = 64
"""Bytes at a multiple of which every parameter begins. Rounding depends on it, and an engine takes what begins so in
place; a file's tensors begin anywhere."""
WEIGHTS_FILE = "model.safetensors"

_RECOMPILATIONS = 64
"""Graphs per layer: with and without gradient, one sequence or several, one token or several."""


def load_policy(
    policy: Path | str, settings: ModelSettings, device: str = "cpu", *, held_on: str | None = None
) -> PreTrainedModel:
    """The model of `policy`, in evaluation mode, with a new adapter where the settings have one.

    `policy` is a folder in Hugging Face's layout, or a hub id. `held_on` is where its weights are put, `device` where
    it will compute: they differ for weights that are sliced on their way to the device. An adapter that was trained
    before belongs to such a folder: use `restore_adapter` to continue training it. Raises ConfigurationError where the
    device does not support the precision, or the model does not have the layers that the settings name.
    """
    require_device(settings, device)
    frozen_dtype = torch.float32 if settings.adapter is None else dtype_of(settings)
    return _prepare(read_model(policy, frozen_dtype, settings.adapter), settings, device, held_on or device)


def read_model(policy: Path | str, dtype: torch.dtype | str, adapter: Adapter | None = None) -> PreTrainedModel:
    """The model of `policy` in this precision, `auto` for its own, and with a new adapter where one is given."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(policy), dtype=dtype, attn_implementation="sdpa", trust_remote_code=False
    )
    _forget_contradictions(model)
    if adapter is not None:
        add_adapter(model, adapter)
    return model


def _forget_contradictions(model: PreTrainedModel) -> None:
    """Reduce a generation configuration that contradicts itself to its special tokens.

    Some published ones set a temperature without `do_sample`. transformers reads them and refuses to save them. The
    section `rollout` says how replies are sampled, so nothing that is used gets lost.
    """
    configuration = model.generation_config
    if configuration is None:
        return
    try:
        configuration.validate(strict=True)
    except ValueError:
        special = {name: getattr(configuration, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**special)


def load_trunk(
    policy: Path | str, settings: ModelSettings, device: str, *, seed: int | None = None, held_on: str | None = None
) -> PreTrainedModel:
    """The model of `policy` without its output layer, for a critic.

    It has the policy's weights, or with `seed` random ones. `held_on` is as for `load_policy`. Raises
    ConfigurationError for settings with an adapter.
    """
    if settings.adapter is not None:
        raise ConfigurationError(
            "a critic's trunk must have no adapter, all of it is trained: set adapter to None", "TW-critic-adapter"
        )
    require_device(settings, device)
    configuration = AutoConfig.from_pretrained(str(policy), trust_remote_code=False)
    if seed is None:
        # AutoModel has no output layer, and would report that of a causal language model as unexpected.
        whole = any(name.endswith("ForCausalLM") for name in configuration.architectures or ())
        loader = AutoModelForCausalLM if whole else AutoModel
        trunk: PreTrainedModel = loader.from_pretrained(
            str(policy), dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        ).base_model
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            trunk = AutoModel.from_config(configuration, dtype=torch.float32, attn_implementation="sdpa")
    return _prepare(trunk, settings, device, held_on or device)


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that receive a gradient, by name: all of them, or with an adapter only the adapter's."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of the trunk, in order: the modules that transformers marks as such, and none where it marks none."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def merged_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The full model's tensors by name, in float32 and with an adapter merged, as they are saved and given to engines.

    The model is not changed. The output layer is always included, even where it is tied to the embedding. Tensors are
    made one at a time: who keeps none of them needs room for the largest alone. Of a model that several processes train
    together, all must ask for the tensors, which are gathered.
    """
    modules, tensors = dict(model.named_modules()), model.state_dict(keep_vars=True)
    uses = Counter(map(id, tensors.values()))
    shared: dict[int, torch.Tensor] = {}  # tied tensors stay one tensor, so that a file holds them once
    for name, tensor in tensors.items():
        if ".lora_" in name:
            continue
        precise = shared.get(id(tensor))
        if precise is None:
            gathered = whole(tensor.detach())
            precise = gathered.float() if gathered.is_floating_point() else gathered
        if uses[id(tensor)] > 1:
            shared[id(tensor)] = precise
        owner, base, parameter = name.rpartition(".base_layer.")
        if base and parameter == "weight":
            precise = precise + modules[owner].get_delta_weight(ADAPTER_NAME).detach()
        yield (f"{owner}.{parameter}" if base else name), precise


def save_policy(
    model: PreTrainedModel, folder: Path, settings: ModelSettings, base: str = "", *, writes: bool = True
) -> None:
    """Write the weights in Hugging Face's layout; of a model with an adapter the adapter alone, and the configuration.

    `config.json` names the precision that the model computes in; an engine on an accelerator uses the same. `base`
    names the weights that the adapter belongs to. Without `writes` this process only takes part in gathering the
    weights, which another one writes.
    """
    if not writes:
        for _ in merged_weights(model):
            pass
        return
    if settings.adapter is not None:
        model.config.save_pretrained(folder)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(folder)
        name_precision(folder, settings.precision)
        save_adapter(model, folder, settings.adapter, base)
        return
    weights = dict(merged_weights(model))
    if model in _saved:
        _save_again(model, folder, weights)
    else:
        model.save_pretrained(folder, state_dict=weights, max_shard_size="1000GB")
        name_precision(folder, settings.precision)
        _remember_saved(model, folder, weights)


def write_merged(model: PreTrainedModel, folder: Path) -> None:
    """Write all weights in Hugging Face's layout, with an adapter merged, into one file."""
    model.save_pretrained(folder, state_dict=dict(merged_weights(model)), max_shard_size="1000GB")


def name_precision(folder: Path, precision: str) -> None:
    """Write the precision that the model computes in into the folder's `config.json`."""
    configuration = folder / "config.json"
    values = {**json.loads(configuration.read_text(encoding="utf-8")), "dtype": precision}
    configuration.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def named_precision(folder: Path) -> torch.dtype:
    """The precision that the folder's `config.json` names."""
    named: torch.dtype = getattr(torch, json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"])
    return named


_saved: WeakKeyDictionary[PreTrainedModel, tuple[frozenset[str], dict[str, bytes]]] = WeakKeyDictionary()
"""Of models saved before: the names of the tensors in the file of weights, and the other files, which stay the same."""


def _remember_saved(model: PreTrainedModel, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Remember what `save_pretrained` writes besides the weights' values: that takes longer than a small policy's."""
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
        names = frozenset(file.keys())
    if names <= weights.keys():  # else the names in the file are not the model's own
        _saved[model] = (names, {path.name: path.read_bytes() for path in folder.glob("*.json")})


def _save_again(model: PreTrainedModel, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """The same bytes as `save_pretrained` would write, with the weights as they are now."""
    names, files = _saved[model]
    folder.mkdir(parents=True, exist_ok=True)  # as `save_pretrained` does
    for name, content in files.items():
        (folder / name).write_bytes(content)
    tensors = {name: tensor.contiguous() for name, tensor in weights.items() if name in names}
    save_file(on_cpu(tensors), folder / WEIGHTS_FILE, metadata={"format": "pt"})


def dtype_of(settings: ModelSettings) -> torch.dtype:
    """The settings' precision as a torch dtype."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[settings.precision]


def require_device(settings: ModelSettings, device: str) -> None:
    """Raise ConfigurationError unless this machine can compute with these settings on the device.

    It must have the device, the device must have instructions for the precision, and where layers are to be compiled
    torch must have its compiler: Triton on CUDA, a C++ compiler on the CPU.
    """
    kind = torch.device(device).type
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            "the device cuda must be there; torch finds none: set compute.device to cpu", "TW-no-cuda"
        )
    if settings.compiled:
        _require_compiler(kind)
    if settings.moments == "8-bit" and importlib.util.find_spec("torchao") is None:
        raise ConfigurationError(
            "moments in 8 bits need torchao; it is not installed: pip install 'turnwise[low-memory]', or set "
            "compute.moments to bfloat16",
            "TW-missing-package",
        )
    if settings.precision == "float32":
        return
    if kind == "cuda":
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        features = torch.cpu.get_capabilities()
        has_it = kind == "cpu" and bool(features.get("avx512_bf16") or features.get("amx_tile"))
    if not has_it:
        raise ConfigurationError(
            f"precision bfloat16 needs a device with instructions for it; this machine's {kind} has none, and would be "
            "slower than in float32: set precision to float32",
            "TW-no-bfloat",
        )


def require_cards(needed: int) -> None:
    """Raise ConfigurationError unless this machine has so many cards, which a run takes."""
    cards = torch.cuda.device_count()
    if cards < needed:
        raise ConfigurationError(
            f"this machine must have the cards that a run takes, {needed}; found {cards}: lower "
            "compute.learner_processes, compute.engines or compute.tensor_parallel, let the engines share the "
            "learner's cards (compute.engines_apart: false), or set compute.device to cpu",
            "TW-too-few-cards",
        )


def _require_compiler(kind: str) -> None:
    if kind == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise ConfigurationError(
                "compiled needs Triton, with which torch compiles for a card; it is not installed: pip install triton, "
                "or set compute.compiled to false",
                "TW-missing-package",
            )
        return
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ConfigurationError(
            f"compiled needs a C++ compiler, with which torch compiles for the {kind}; found no {compiler} on the "
            "path: install g++, or set compute.compiled to false",
            "TW-missing-program",
        )


def _prepare(model: PreTrainedModel, settings: ModelSettings, device: str, held_on: str) -> PreTrainedModel:
    """The model in evaluation mode, with checkpointing, compilation and precision as in the settings."""
    model = aligned(model.to(torch.device(held_on)).eval())
    if can_lie_side_by_side(model, torch.device(device).type, compiled=settings.compiled):
        model.set_attn_implementation(SIDE_BY_SIDE)
    layers = layers_of(model)
    if not layers and (settings.gradient_checkpointing or settings.compiled):
        raise ConfigurationError(
            "gradient_checkpointing and compiled need a model whose layers transformers marks as such; "
            f"{type(model).__name__} has none: set both to false",
            "TW-unmarked-layers",
        )
    if settings.gradient_checkpointing:
        # No layer is random (no dropout), so saving the random generators' states would only cost time.
        model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        for layer in layers:
            layer.training = True
    if settings.compiled:
        for layer in layers:
            layer.compile(dynamic=True)
    if settings.compiled or settings.precision != "float32":
        trunk = model.base_model
        trunk.forward = TrunkForward(trunk.forward, settings, torch.device(device).type)
    return model


def aligned(model: PreTrainedModel) -> PreTrainedModel:
    """The model, with parameters that begin at multiples of `ALIGNMENT`."""
    for parameter in model.parameters():
        if parameter.data_ptr() % ALIGNMENT:
            parameter.data = parameter.data.clone()
    return model


class TrunkForward:
    """A trunk's forward pass under autocast, and with the compiler enabled around it, as the settings ask."""

    def __init__(self, forward: Callable[..., Any], settings: ModelSettings, device_type: str) -> None:
        functools.update_wrapper(self, forward)  # transformers looks at the signature
        self._forward, self._device_type = forward, device_type
        self.precision, self.compiled = dtype_of(settings), settings.compiled

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The pass itself."""
        with self.autocast():
            if not self.compiled:
                return self._forward(*arguments, **keywords)
            # A compiled layer must not silently run uncompiled: not after too many recompilations, and not because the
            # environment turns the compiler off (TORCH_COMPILE_DISABLE).
            with torch._dynamo.config.patch(
                disable=False, recompile_limit=_RECOMPILATIONS, fail_on_recompile_limit_hit=True
            ):
                return self._forward(*arguments, **keywords)

    def autocast(self) -> torch.autocast:
        """The context in which the trunk's arithmetic has the precision."""
        return torch.autocast(self._device_type, torch.bfloat16, enabled=self.precision == torch.bfloat16)


def trunk_forward(model: PreTrainedModel) -> TrunkForward | None:
    """What stands around the forward pass of a model's trunk; None where nothing does: plain layers in float32."""
    return vars(model.base_model).get("forward")
