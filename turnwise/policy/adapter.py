"""A low-rank adapter on a model: adding it, saving it without the model that it belongs to, and continuing with it.

LoRA, Hu et al. 2021, arXiv 2106.09685, equation 3, by peft, on linear layers chosen by name:

    W' = W + (alpha / rank) B A        A: [rank, in], random; B: [out, rank], zero, so that training starts at W

W is frozen. Differs from the paper: no dropout on the adapter's input, since an update is a function of its batch.
Merging computes W' as a new tensor and never overwrites W, so that rounding errors do not accumulate in W.

The files are in peft's layout, in a subfolder: `PeftModel.from_pretrained(base, folder / "adapter")` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.config.model_settings import Adapter
from turnwise.errors import ArtifactError, ConfigurationError

ADAPTER_FILE = "adapter/adapter_model.safetensors"
"""In a subfolder, since engines load every safetensors file next to the model's as weights."""
DESCRIPTION_FILE = "adapter/adapter_config.json"
ADAPTER_NAME = "default"
_PREFIX, _BASE = "base_model.model.", "base_model_name_or_path"
"""What peft puts before the names of tensors, and calls the model that an adapter belongs to."""


def add_adapter(model: PreTrainedModel, settings: Adapter) -> None:
    """Add the adapter, in float32, to the linear layers that it names, and freeze all other parameters.

    Raises ConfigurationError for a layer that the model does not have.
    """
    from peft import LoraConfig, inject_adapter_in_model

    trunk = model.base_model.named_modules()
    linear = sorted({name.rpartition(".")[2] for name, module in trunk if isinstance(module, torch.nn.Linear)})
    for target in settings.target_modules:
        if target not in linear:
            raise ConfigurationError(
                f"an adapter's target_modules must be linear layers of {type(model).__name__}, which are "
                f"{', '.join(linear)}; found {target!r}",
                "TW-adapter-modules",
            )
    configuration = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(settings.target_modules),
        lora_dropout=0.0,
        bias="none",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        inject_adapter_in_model(configuration, model, adapter_name=ADAPTER_NAME)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


@contextmanager
def without_adapter(model: PreTrainedModel) -> Iterator[None]:
    """Within the block the model computes as if it had no adapter: with the frozen weights that it began with."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def save_adapter(model: PreTrainedModel, folder: Path, settings: Adapter, base: str) -> None:
    """Write the adapter and its description into `folder`; `base` names the weights that it belongs to."""
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "target_modules": sorted(settings.target_modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        _BASE: base,
    }
    (folder / ADAPTER_FILE).parent.mkdir(parents=True, exist_ok=True)
    save_file(on_cpu(_adapter_tensors(model)), folder / ADAPTER_FILE, metadata={"format": "pt"})
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def has_adapter(folder: Path) -> bool:
    """Whether the policy in this folder is an adapter, without the weights that it belongs to."""
    return (folder / DESCRIPTION_FILE).is_file()


def base_name(folder: Path) -> str:
    """The name of the weights that the adapter in `folder` belongs to, as it was saved."""
    return str(_description(folder)[_BASE])


def saved_adapter(folder: Path) -> Adapter:
    """The settings of the adapter in `folder`; the seed of its first weights is not among them."""
    description = _description(folder)
    return Adapter(
        rank=description["r"], alpha=description["lora_alpha"], target_modules=tuple(description["target_modules"])
    )


def restore_adapter(model: PreTrainedModel, folder: Path, settings: Adapter) -> None:
    """Load the adapter in `folder` into `model`, so that it equals the saved one to the bit.

    `model` has an adapter with these settings, on the weights that the saved one belongs to. Raises ArtifactError where
    the adapter's files are missing, and ConfigurationError where they belong to an adapter with other settings.
    """
    for file in (ADAPTER_FILE, DESCRIPTION_FILE):
        if not (folder / file).is_file():
            raise ArtifactError(
                f"to go on training an adapter its folder must hold {file}; {folder} does not: begin a new adapter "
                "with load_policy, or compute the policy again",
                "TW-incomplete-policy",
            )
    alpha = saved_adapter(folder).alpha
    if alpha != settings.alpha:
        raise ConfigurationError(
            f"an adapter goes on with the alpha that it began with, {alpha}; found {settings.alpha}: set it as it was, "
            "or begin a new adapter with load_policy",
            "TW-adapter-changed",
        )
    _take(_adapter_tensors(model), load_file(folder / ADAPTER_FILE), folder / ADAPTER_FILE)


def _description(folder: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
    return description


def _adapter_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The adapter's tensors by peft's names, which leave the adapter's own name out."""
    return {
        _PREFIX + name.replace(f".{ADAPTER_NAME}.", "."): tensor
        for name, tensor in model.state_dict().items()
        if ".lora_" in name
    }


def _take(tensors: dict[str, torch.Tensor], stored: dict[str, torch.Tensor], path: Path) -> None:
    """Copy the stored tensors into the model's. Raises ConfigurationError where their names or shapes differ."""
    saved_shapes, expected = (
        {name: tuple(tensor.shape) for name, tensor in either.items()} for either in (stored, tensors)
    )
    if saved_shapes != expected:
        differing = min(name for name in saved_shapes | expected if saved_shapes.get(name) != expected.get(name))
        raise ConfigurationError(
            f"an adapter goes on with the rank and target_modules that it began with; {path} holds "
            f"{saved_shapes.get(differing, 'nothing')} for {differing}, the settings ask for "
            f"{expected.get(differing, 'nothing')}: set them as they were, or begin a new adapter with load_policy",
            "TW-adapter-changed",
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored[name])


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as safetensors writes them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
