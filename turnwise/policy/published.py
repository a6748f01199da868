"""Checks of a published model before the first stage: that engine, learner and agent can use its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turnwise.config.model_settings import require_kernels, require_parts
from turnwise.errors import ConfigurationError
from turnwise.policy.declared_functions import DeclaredFunctions

NO_SWITCHES: Mapping[str, Any] = MappingProxyType({})


def require_usable(
    folder: Path,
    *,
    engine: str,
    tensor_parallel: int = 1,
    context_tokens: int,
    chat_template_kwargs: Mapping[str, Any] = NO_SWITCHES,
    functions: DeclaredFunctions | None = None,
) -> None:
    """Raise ConfigurationError unless the model in `folder` can be loaded, sampled from and prompted.

    It must be a causal language model whose head dimension the engine's kernels support, whose heads `tensor_parallel`
    divides, with room for `context_tokens` tokens. The headers of its weight files must be intact. Its tokenizer must
    fit the model and have a chat template that ends a reply with a token, reads the switches `chat_template_kwargs` and
    declares `functions`. Its generation configuration must be readable and name end tokens of that tokenizer. No weight
    is loaded.
    """
    from transformers import AutoConfig, GenerationConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from turnwise.policy.chat_template import set_switches
    from turnwise.policy.function_frame import frame_of
    from turnwise.policy.tokenizer import GENERATION_FILE, generation_end_tokens, load_tokenizer

    configuration = _read(
        folder, "config.json", lambda: AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    )
    if configuration.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ConfigurationError(
            f"policy.model must be a causal language model; {folder / 'config.json'} is of the type "
            f"{configuration.model_type!r}"
        )
    _require_shape(folder, configuration, engine, tensor_parallel, context_tokens)
    _require_weights(folder)
    tokenizer = _read(folder, "its tokenizer", lambda: load_tokenizer(folder))
    if (folder / GENERATION_FILE).is_file():
        _read(folder, GENERATION_FILE, lambda: GenerationConfig.from_pretrained(str(folder)))
    try:
        set_switches(tokenizer, chat_template_kwargs)
        frame_of(tokenizer, generation_end_tokens(folder), functions)
    except ConfigurationError as error:
        raise ConfigurationError(f"policy.model {folder}: {error}") from error
    if len(tokenizer) > configuration.get_text_config().vocab_size:
        raise ConfigurationError(
            f"the tokenizer of policy.model must have no more tokens than the model, "
            f"{configuration.get_text_config().vocab_size}; {folder} has {len(tokenizer)}: it is another model's"
        )


def _read(folder: Path, name: str, read: Any) -> Any:
    """Return `read()`, with the errors by which transformers reports a faulty folder as ConfigurationError."""
    try:
        return read()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigurationError(f"policy.model {folder}: transformers must be able to read {name}; {said}") from error


def _require_shape(folder: Path, configuration: Any, engine: str, tensor_parallel: int, context_tokens: int) -> None:
    text = configuration.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    dimension = getattr(text, "head_dim", None) or (heads and text.hidden_size // heads)
    if dimension:
        try:
            require_kernels(dimension, 1, engine)
        except ConfigurationError as error:
            raise ConfigurationError(f"policy.model {folder}: {error}") from error
    if heads:
        require_parts(tensor_parallel, heads)
    room = getattr(text, "max_position_embeddings", None)
    if room is not None and context_tokens > room:
        raise ConfigurationError(
            f"agent.context_tokens must be at most what policy.model has positions for, {room}; found {context_tokens}"
        )


def _require_weights(folder: Path) -> None:
    from safetensors import SafetensorError, safe_open

    for index in sorted(folder.glob("model*.safetensors.index.json")):
        named = _read(folder, index.name, lambda index=index: set(json.loads(index.read_text())["weight_map"].values()))
        if missing := sorted(name for name in named if not (folder / name).is_file()):
            raise ConfigurationError(
                f"policy.model {folder} must hold every file of weights that {index.name} names; {len(missing)} of "
                f"{len(named)} are missing, {missing[0]} among them: download it again"
            )
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as opened:
                names = list(opened.keys())
        except (OSError, SafetensorError) as error:
            raise ConfigurationError(f"policy.model: {file} must be whole; {error}: download it again") from error
        if not names:
            raise ConfigurationError(f"policy.model: {file} must hold weights; found none")
