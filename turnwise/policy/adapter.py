"""A low-rank adapter on a model: adding it, saving it next to the merged weights, and continuing with it.

LoRA, Hu et al. 2021, arXiv 2106.09685, equation 3, by peft, on linear layers chosen by name:

    W' = W + (alpha / rank) B A        A: [rank, in], random; B: [out, rank], zero, so that training starts at W

W is frozen. Differs from the paper: no dropout on the adapter's input, since an update is a function of its batch.
Merging computes W' as a new tensor and never overwrites W, so that rounding errors do not accumulate in W.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.config.model_settings import Adapter, ModelSettings
from turnwise.errors import ArtifactError, ConfigurationError

ADAPTER_FILE = "adapter/adapter.safetensors"
"""In a subfolder, since engines load every safetensors file next to the model's as weights."""
FROZEN_FILE = "adapter/frozen.safetensors"
"""The frozen weights under the adapter, W. model.safetensors holds W', from which W cannot be recovered exactly."""
ADAPTER_NAME = "default"
_ALPHA = "alpha"


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
                f"{', '.join(linear)}; found {target!r}"
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


def save_adapter(model: PreTrainedModel, folder: Path, settings: Adapter) -> None:
    """Write the files that `restore_adapter` needs into `folder`, next to the merged weights."""
    (folder / ADAPTER_FILE).parent.mkdir(exist_ok=True)
    alpha = {_ALPHA: str(settings.alpha)}
    save_file(on_cpu(_adapter_tensors(model)), folder / ADAPTER_FILE, metadata=alpha)
    save_file(on_cpu(_frozen_tensors(model)), folder / FROZEN_FILE)


def restore_adapter(model: PreTrainedModel, folder: Path, settings: ModelSettings) -> None:
    """Load the adapter and the frozen weights in `folder` into `model`, so that it equals the saved one to the bit.

    `model` is the result of `load_policy` for the same folder, which `save_policy` wrote. Without an adapter in the
    settings nothing is left to do. Raises ArtifactError where the adapter's files are missing, and ConfigurationError
    where they belong to an adapter with other settings.
    """
    if settings.adapter is None:
        return
    for file in (ADAPTER_FILE, FROZEN_FILE):
        if not (folder / file).is_file():
            raise ArtifactError(
                f"to go on training an adapter its folder must hold {file}; {folder} does not: begin a new adapter "
                "with load_policy, or compute the policy again"
            )
    with safe_open(folder / ADAPTER_FILE, framework="pt") as file:
        alpha = int(file.metadata()[_ALPHA])
    if alpha != settings.adapter.alpha:
        raise ConfigurationError(
            f"an adapter goes on with the alpha that it began with, {alpha}; found {settings.adapter.alpha}: set it "
            "as it was, or begin a new adapter with load_policy"
        )
    _take(_adapter_tensors(model), load_file(folder / ADAPTER_FILE), folder / ADAPTER_FILE)
    _take(_frozen_tensors(model), load_file(folder / FROZEN_FILE), folder / FROZEN_FILE)


def _adapter_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if ".lora_" in name}


def _frozen_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The frozen weights under the adapter. All others are the same with and without it, so they need no copy."""
    return {name: tensor for name, tensor in model.state_dict().items() if ".base_layer." in name}


def _take(tensors: dict[str, torch.Tensor], stored: dict[str, torch.Tensor], path: Path) -> None:
    """Copy the stored tensors into the model's. Raises ConfigurationError where their names or shapes differ."""
    found, expected = ({name: tuple(tensor.shape) for name, tensor in either.items()} for either in (stored, tensors))
    if found != expected:
        differing = min(name for name in found | expected if found.get(name) != expected.get(name))
        raise ConfigurationError(
            f"an adapter goes on with the rank and target_modules that it began with; {path} holds "
            f"{found.get(differing, 'nothing')} for {differing}, the settings ask for "
            f"{expected.get(differing, 'nothing')}: set them as they were, or begin a new adapter with load_policy"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored[name])


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as safetensors writes them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
