"""Checks of a published model before the first stage: that engine, learner and agent can use its folder.

`require_readable` reads the files' names, headers and JSON alone: neither torch nor transformers is imported for the
families that `turnwise.policy.sizes` knows. A plan (`--dry-run`) and a run ask it before anything else.
`require_usable` has transformers read what the run will read by it, which takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.config.model_settings import require_kernels, require_parts
from turnwise.errors import ConfigurationError, first_line
from turnwise.policy.chat_template import set_switches
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.policy.file_tokenizer import FileTokenizer, require_vocabulary_file
from turnwise.policy.function_frame import frame_of
from turnwise.policy.sizes import configured_dimensions, read_configuration
from turnwise.policy.tokenizer import GENERATION_FILE, generation_end_tokens, load_tokenizer
from turnwise.policy.weight_files import require_fitting_weights, require_weights_form

PLAIN_GENERATION = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "do_sample",
        "eos_token_id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "repetition_penalty",
        "temperature",
        "top_k",
        "top_p",
        "transformers_version",
        "use_cache",
    }
)
"""Keys of a generation configuration that no value makes unreadable, but for the end tokens, which are looked at."""


@dataclass(frozen=True)
class ModelUse:
    """What a model is to be used for."""

    engine: str
    """Whose kernels compute attention."""
    context_tokens: int
    """The most that a context has."""
    tensor_parallel: int = 1
    """By how many its heads must be divisible."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Switches that its chat template must read."""
    functions: DeclaredFunctions | None = None
    """What its chat template must declare."""


def require_readable(folder: Path, use: ModelUse) -> None:
    """Raise ConfigurationError for what the folder's own files show to be unusable; otherwise as `require_usable`.

    What only transformers can tell, of an architecture or a tokenizer of another kind, is asked of it.
    """
    require_weights_form(folder, str(folder))
    values = read_configuration(folder) or {}
    dimensions = configured_dimensions(values)
    if dimensions is None:
        require_usable(folder, use)
        return
    _require_heads(str(folder), dimensions.heads, dimensions.head_dimension, use)
    _require_room(values.get("max_position_embeddings"), use)
    require_fitting_weights(folder)
    require_vocabulary_file(folder)
    _require_generation(folder)
    tokenizer = _tokenizer(folder)
    _require_frame(folder, tokenizer, use)
    _require_vocabulary(folder, len(tokenizer), dimensions.vocabulary)


def require_sizes(values: Mapping[str, Any], model: str, use: ModelUse) -> None:
    """Raise ConfigurationError where the sizes of a `config.json` fit neither the engine nor the agent's contexts.

    `model` is how the user named the model.
    """
    if (dimensions := configured_dimensions(values)) is not None:
        _require_heads(model, dimensions.heads, dimensions.head_dimension, use)
    _require_room(values.get("max_position_embeddings"), use)


def require_usable(folder: Path, use: ModelUse) -> None:
    """Raise ConfigurationError unless the model in `folder` can be loaded, sampled from and prompted.

    It must be a causal language model with heads and positions as `use` needs them. Its weight files must be intact,
    and hold the tensors of the model that its configuration describes, none missing, none of another shape, none
    besides. Its tokenizer must fit the model and have a chat template that ends a reply with a token, and has what
    `use` needs. Its generation configuration must be readable and name end tokens of that tokenizer. No weight is
    loaded.
    """
    from transformers import AutoConfig, GenerationConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    configuration = _read(
        folder, "config.json", lambda: AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    )
    if configuration.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ConfigurationError(
            f"policy.model must be a causal language model; {folder / 'config.json'} is of the type "
            f"{configuration.model_type!r}",
            "TW-not-a-decoder",
        )
    text = configuration.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    dimension = getattr(text, "head_dim", None) or (heads and text.hidden_size // heads)
    _require_heads(str(folder), heads, dimension, use)
    _require_room(getattr(text, "max_position_embeddings", None), use)
    require_fitting_weights(folder)
    require_vocabulary_file(folder)
    tokenizer = _read(folder, "its tokenizer", lambda: load_tokenizer(folder))
    if (folder / GENERATION_FILE).is_file():
        _read(folder, GENERATION_FILE, lambda: GenerationConfig.from_pretrained(str(folder)))
    _require_frame(folder, tokenizer, use)
    _require_vocabulary(folder, len(tokenizer), text.vocab_size)


def _require_generation(folder: Path) -> None:
    """Have transformers judge a generation configuration, unless it holds only what every published one does."""
    path = folder / GENERATION_FILE
    if not path.is_file():
        return
    values = _read(folder, GENERATION_FILE, lambda: json.loads(path.read_text(encoding="utf-8")))
    if isinstance(values, dict) and PLAIN_GENERATION.issuperset(values):
        return
    from transformers import GenerationConfig

    _read(folder, GENERATION_FILE, lambda: GenerationConfig.from_pretrained(str(folder)))


def _tokenizer(folder: Path) -> Any:
    """The tokenizer of the folder, by transformers where it is of a kind that `FileTokenizer` does not read."""
    if (folder / "tokenizer.json").is_file():
        return FileTokenizer(folder)
    return _read(folder, "its tokenizer", lambda: load_tokenizer(folder))


def _require_frame(folder: Path, tokenizer: Any, use: ModelUse) -> None:
    ends = _read(folder, GENERATION_FILE, lambda: generation_end_tokens(folder))
    try:
        set_switches(tokenizer, use.chat_template_kwargs)
        frame_of(tokenizer, ends, use.functions)
    except ConfigurationError as error:
        raise ConfigurationError(f"policy.model {folder}: {error}") from error


def _require_vocabulary(folder: Path, tokens: int, vocabulary: int) -> None:
    if tokens > vocabulary:
        raise ConfigurationError(
            f"the tokenizer of policy.model must have no more tokens than the model, {vocabulary}; {folder} has "
            f"{tokens}: it is another model's",
            "TW-foreign-tokenizer",
        )


def _read(folder: Path, name: str, read: Any) -> Any:
    """Return `read()`, with the errors by which transformers reports a faulty folder as ConfigurationError."""
    try:
        return read()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(
            f"policy.model {folder}: transformers must be able to read {name}; {first_line(error)}",
            "TW-unreadable-model",
        ) from error


def _require_heads(model: str, heads: int | None, dimension: int | None, use: ModelUse) -> None:
    if dimension:
        try:
            require_kernels(dimension, 1, use.engine)
        except ConfigurationError as error:
            raise ConfigurationError(f"policy.model {model}: {error}") from error
    if heads:
        require_parts(use.tensor_parallel, heads)


def _require_room(positions: Any, use: ModelUse) -> None:
    if isinstance(positions, int) and use.context_tokens > positions:
        raise ConfigurationError(
            f"agent.context_tokens must be at most what policy.model has positions for, {positions}; "
            f"found {use.context_tokens}",
            "TW-long-context",
        )
