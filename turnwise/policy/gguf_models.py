"""Models in GGUF files: what such a file says of itself, and its conversion to Hugging Face's layout.

A GGUF holds the tensors of one model, often quantised, its dimensions, its tokenizer and its chat template.
transformers reads those of its own architectures. Weights are dequantised to float32: training goes on from the rounded
values.

`GgufHeader` is read from the file's metadata in tens of milliseconds, without numpy, torch or transformers.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from turnwise.errors import ConfigurationError, first_line
from turnwise.policy.sizes import FAMILIES

CONVERSION_FILE = "converted_from.json"
"""In a converted folder: the content and the precisions of the GGUF that it was made from, and by which versions."""
CONVERTER = ("transformers", "gguf")
"""The packages whose version can change what a conversion makes."""
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The formats of GGUF's numbers, by their codes; 8 is a text and 9 an array."""
_PRECISIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K"} | {
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    20: "IQ4_NL",
    23: "IQ4_XS",
    30: "BF16",
}
"""The names of the most used precisions, by their codes."""
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "head_dim": "rope.dimension_count",
}
"""GGUF's names of a configuration's sizes, after the architecture."""


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF says of its model."""

    architecture: str
    metadata: Mapping[str, Any]
    """By key; of an array of texts only the number of them."""
    precisions: Mapping[str, int]
    """How many tensors there are in each precision."""
    tied: bool
    """Whether there is no output layer besides the embedding."""

    @property
    def chat_template(self) -> str | None:
        """The chat template; None where the file has none."""
        return self.metadata.get("tokenizer.chat_template")

    @property
    def configuration(self) -> dict[str, Any]:
        """The sizes under the names of a `config.json`."""
        sizes = {name: self.metadata.get(f"{self.architecture}.{key}") for name, key in _SIZES.items()}
        return {
            "model_type": self.architecture,
            "vocab_size": int(self.metadata.get("tokenizer.ggml.tokens", 0)),
            "tie_word_embeddings": self.tied,
            **{name: size for name, size in sizes.items() if size is not None},
        }


def in_words(precisions: Mapping[str, int]) -> str:
    """Numbers of tensors by their precisions, the most frequent first: `Q4_1 (210 tensors), F32 (61)`."""
    each = sorted(precisions.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} ({number}{' tensors' * (not place)})" for place, (name, number) in enumerate(each))


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file. Raises ConfigurationError for another or a damaged file."""
    try:
        with path.open("rb") as file:
            return _header(file)
    except (OSError, struct.error, ValueError, KeyError, MemoryError, OverflowError) as error:
        raise ConfigurationError(
            f"policy.model: {path} must be a whole GGUF file; {first_line(error)}: download it again",
            "TW-incomplete-weights",
        ) from error


def _header(file: BinaryIO) -> GgufHeader:
    if file.read(4) != b"GGUF":
        raise ValueError("it does not begin as one")
    (format_version,) = struct.unpack("<I", file.read(4))
    if format_version not in (2, 3):
        raise ValueError(f"it is of version {format_version}, and 2 and 3 are known")
    tensors, entries = struct.unpack("<QQ", file.read(16))
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        key = _text(file)
        metadata[key] = _value(file, *struct.unpack("<I", file.read(4)))
    names: set[str] = set()
    precisions: Counter[str] = Counter()
    for _ in range(tensors):
        names.add(_text(file))
        (dimensions,) = struct.unpack("<I", file.read(4))
        file.read(8 * dimensions)
        (code, _) = struct.unpack("<IQ", file.read(12))
        precisions[_PRECISIONS.get(code, f"type {code}")] += 1
    return GgufHeader(str(metadata["general.architecture"]), metadata, precisions, "output.weight" not in names)


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    content = file.read(length)
    if len(content) < length:
        raise ValueError("it ends early")
    return content.decode("utf-8", "replace")


def _value(file: BinaryIO, code: int) -> Any:
    if code == 8:
        return _text(file)
    if code != 9:
        form = f"<{_NUMBERS[code]}"
        return struct.unpack(form, file.read(struct.calcsize(form)))[0]
    element, number = struct.unpack("<IQ", file.read(12))
    if element == 8:
        for _ in range(number):
            file.seek(struct.unpack("<Q", file.read(8))[0], 1)
        return number
    if element == 9:
        return [_value(file, 9) for _ in range(number)]
    form = f"<{number}{_NUMBERS[element]}"
    return list(struct.unpack(form, file.read(struct.calcsize(form))))


def require_gguf(path: Path) -> GgufHeader:
    """The header of a GGUF that can be trained here.

    Raises ConfigurationError for a damaged file, an architecture that transformers does not read, and a model without a
    chat template. Of the families of `turnwise.policy.sizes` it is said without importing transformers.
    """
    header = read_header(path)
    if header.architecture not in FAMILIES:
        from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

        if header.architecture not in GGUF_SUPPORTED_ARCHITECTURES:
            raise ConfigurationError(
                f"policy.model must be a GGUF of an architecture that transformers reads; {path} is of "
                f"{header.architecture!r}: choose the model in Hugging Face's layout",
                "TW-unknown-architecture",
            )
    if not header.chat_template:
        raise ConfigurationError(
            f"policy.model {path}: the policy's tokenizer must have a chat template; found none: choose an "
            "instruction-tuned model, or convert it to a folder and put a chat_template.jinja there",
            "TW-no-chat-template",
        )
    return header


def converter_versions() -> dict[str, str]:
    """The installed versions of what converts. Raises ConfigurationError where one is missing."""
    try:
        return {name: version(name) for name in CONVERTER}
    except PackageNotFoundError as error:
        raise ConfigurationError(
            f"a GGUF is read by the package {error.name}, which is not installed: pip install {error.name}",
            "TW-missing-package",
        ) from error


def _drop_added_tokens(tokenizer: Path, vocabulary: int) -> None:
    """Remove tokens beyond the model's vocabulary from a `tokenizer.json`.

    transformers adds GPT-2's `<|endoftext|>` to every vocabulary of its kind, also where the file has none.
    """
    if not tokenizer.is_file():
        return
    words = json.loads(tokenizer.read_text(encoding="utf-8"))
    known = [token for token in words["added_tokens"] if token["id"] < vocabulary]
    if len(known) < len(words["added_tokens"]):
        words["added_tokens"] = known
        tokenizer.write_text(json.dumps(words, indent=2, ensure_ascii=False), encoding="utf-8")


def convert(path: Path, folder: Path, content: str) -> int:
    """Write the model and the tokenizer of a GGUF into `folder`, in Hugging Face's layout and float32.

    Returns the number of parameters.

    `content` is the file's SHA-256, which is recorded. The same content gives the same bytes, whatever the file's name.
    Raises ConfigurationError for what transformers cannot read.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    header = require_gguf(path)
    try:
        place, name = str(path.parent), path.name
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name, trust_remote_code=False)
        loaded = AutoModelForCausalLM.from_pretrained(
            place, gguf_file=name, dtype=torch.float32, trust_remote_code=False
        )
    except (ImportError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ConfigurationError(
            f"policy.model {path}: transformers must be able to read it; {first_line(error)}", "TW-unreadable-model"
        ) from error
    # What was read from a quantised file would be saved as a quantised model.
    configuration = loaded.config
    configuration.name_or_path = ""
    if hasattr(configuration, "quantization_config"):
        del configuration.quantization_config
    with torch.device("meta"):
        model = type(loaded)(configuration)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder, max_shard_size="1000GB")
    tokenizer.save_pretrained(folder)
    _drop_added_tokens(folder / "tokenizer.json", configuration.get_text_config().vocab_size)
    recorded = {
        "content": content,
        "architecture": header.architecture,
        "precisions": dict(sorted(header.precisions.items())),
        "license": header.metadata.get("general.license"),
        **converter_versions(),
    }
    (folder / CONVERSION_FILE).write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return sum(parameter.numel() for parameter in model.parameters())
