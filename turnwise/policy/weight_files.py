"""Whether a folder holds weights that can be trained: in which form it has them, and that they fit its `config.json`.

Two questions, each answered in a sentence where the answer is no:

* the form, from the names of the files: whole weights of a language model in safetensors, or a checkpoint of a trainer,
  an adapter alone, a GGUF, a pickle, ... and then what to do with it;
* the fit, from the headers of the files: the name and the shape of every tensor against those of the model that
  transformers makes of the configuration. transformers itself fills what is missing with random numbers and goes on.

Of the families of `turnwise.policy.sizes` both are answered without torch or transformers; of another
architecture transformers is asked on torch's meta device, which loads nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError, first_line
from turnwise.policy.sizes import (
    FAMILIES,
    OUTPUT_LAYER,
    Shapes,
    configured_dimensions,
    read_configuration,
)

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
PRECISIONS = ("F64", "F32", "F16", "BF16")
"""Of tensors that can be trained, in the words of a safetensors header."""
CONVERT = (
    "convert it where it comes from: AutoModelForCausalLM.from_pretrained({0!r}).save_pretrained(FOLDER) and "
    "AutoTokenizer.from_pretrained({0!r}).save_pretrained(FOLDER)"
)
OTHER_FORMS: Sequence[tuple[str, str, str]] = (
    ("*.gguf", "a GGUF", "set policy.model to {0}"),
    ("pytorch_model*.bin", "pickled weights", CONVERT),
    ("tf_model*.h5", "TensorFlow's weights", "choose a revision with safetensors, or convert it by transformers 4"),
    ("flax_model*.msgpack", "Flax's weights", "choose a revision with safetensors, or convert it by transformers 4"),
    ("*.onnx", "a model for inference alone", "choose the model that it was made from"),
    ("consolidated*", "weights under the names of another library", "choose the folder in Hugging Face's layout"),
    ("*.distcp", "a distributed checkpoint", "gather it with the trainer that wrote it, and save it whole"),
    ("global_step*", "a checkpoint of DeepSpeed", "gather it with its zero_to_fp32.py, and save it whole"),
    ("*.safetensors", "weights under another name", "save it by save_pretrained, as model.safetensors"),
    *((pattern, "pickled weights", CONVERT) for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt")),
)
"""Forms of weights that are not read: the files' pattern, what they are, and what to do; {0} is the first of them, or
for a conversion the folder."""
TRAINER_PREFIXES = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")
"""How the names of files begin that a trainer writes beside weights."""
WRAPPERS: Mapping[str, str] = {
    "_orig_mod.": "they were saved from a model under torch.compile: save its _orig_mod",
    "_fsdp_wrapped_module.": "they were saved from a model under FSDP: gather its whole state and save that",
    "module.": "they were saved from a model under DataParallel or DeepSpeed: save its module",
    "base_model.model.": "they were saved from PEFT's model: save what its merge_and_unload() returns",
    "pretrained_model.": "they were saved from TRL's model with a value head: save its pretrained_model",
}
"""What other libraries put before the names of a model's tensors, and what to save instead."""
HEADS = re.compile(r"(?:^|\.)(?:score|classifier|qa_outputs|v_head|value_head|reward_head|summary|cls)\.")
OTHER_TASK = re.compile(r"For(?:Sequence|Token)Classification|ForQuestionAnswering|ForMaskedLM|RewardModel|ValueHead")
IGNORED = re.compile(r"\.rotary_emb\.inv_freq$|\.masked_bias$|\.attn\.bias$")
"""Tensors that older libraries saved, and that a model computes from its configuration."""
SHOWN = 3
"""Tensors that a message names of each kind."""


def require_weights_form(folder: Path, model: str) -> None:
    """Raise ConfigurationError unless the folder has a `config.json` and whole weights in safetensors, by its files.

    `model` is how the user named the folder.
    """
    whole = sorted(folder.glob("model*.safetensors"))
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        raise _adapter(adapter, model, beside_weights=bool(whole))
    if whole and not (folder / WEIGHTS_FILE).is_file() and not (folder / INDEX_FILE).is_file():
        raise ConfigurationError(
            f"policy.model {model} must hold {WEIGHTS_FILE}, or {INDEX_FILE} beside files that it names; found "
            f"{whole[0].name} alone: download it again",
            "TW-incomplete-weights",
        )
    if whole and (folder / "config.json").is_file():
        return
    if not whole:
        if checkpoints := _checkpoints(folder):
            raise _trainer_output(folder, model, checkpoints)
        for pattern, what, remedy in OTHER_FORMS:
            files = sorted(path for path in folder.glob(pattern) if not path.name.startswith(TRAINER_PREFIXES))
            if files:
                place = model if remedy.startswith("convert") else str(Path(model) / files[0].name)
                raise ConfigurationError(
                    f"policy.model must hold whole weights in safetensors; {model} holds {what}, {files[0].name}: "
                    f"{remedy.format(place)}",
                    "TW-unsafe-weights",
                )
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"policy.model must be a folder with a model's config.json; {model!r} has none", "TW-unknown-model"
        )
    raise ConfigurationError(
        f"policy.model must be 'scratch', or a directory or hub id with config.json, *.safetensors and a tokenizer "
        f"with a chat template; found no weights in {model!r}",
        "TW-missing-weights",
    )


def _adapter(path: Path, model: str, *, beside_weights: bool) -> ConfigurationError:
    try:
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        base = None
    origin = f" of {base}" if base else ""
    if beside_weights:
        return ConfigurationError(
            f"policy.model must hold whole weights alone; {model} has an adapter{origin} beside them, "
            "adapter_config.json: move it away to train the whole weights as they are, or merge it into them first",
            "TW-adapter-as-model",
        )
    return ConfigurationError(
        f"policy.model must hold whole weights; {model} holds an adapter{origin} alone, adapter_config.json: merge it "
        f"into its base, AutoPeftModelForCausalLM.from_pretrained({model!r}).merge_and_unload()"
        ".save_pretrained(FOLDER), and save the tokenizer there, or set policy.model to its base"
        f"{f', {base}' if base else ''}",
        "TW-adapter-as-model",
    )


def _checkpoints(folder: Path) -> list[Path]:
    """The folders below that hold weights, in the order of their numbers, then of their names."""
    folders = {
        path.parent
        for pattern in ("model*.safetensors", "pytorch_model*.bin", "adapter_config.json")
        for path in folder.glob(f"*/{pattern}")
    }
    return sorted(folders, key=lambda path: ([int(number) for number in re.findall(r"\d+", path.name)], path.name))


def _trainer_output(folder: Path, model: str, checkpoints: Sequence[Path]) -> ConfigurationError:
    last = checkpoints[-1]
    lacking = [
        path.name
        for pattern in ("config.json", "tokenizer*", "chat_template.jinja", "generation_config.json")
        for path in sorted(folder.glob(pattern))
        if not (last / path.name).exists()
    ]
    total = f" of {len(checkpoints)}" if len(checkpoints) > 1 else ""
    copied = f", and copy {', '.join(lacking)} there" if lacking else ""
    return ConfigurationError(
        f"policy.model must hold whole weights; {model} is what a trainer wrote, with weights in {last.name}{total}: "
        f"set policy.model to {Path(model) / last.name}{copied}",
        "TW-trainer-output",
    )


@dataclass(frozen=True)
class _Header:
    """A tensor as the header of its file describes it."""

    file: str
    shape: tuple[int, ...]
    precision: str


def require_fitting_weights(folder: Path) -> None:
    """Raise ConfigurationError unless the folder's tensors are those of its `config.json`, and can be trained.

    The folder must have passed `require_weights_form`.
    """
    values = read_configuration(folder) or {}
    _require_language_model(folder, values)
    headers = _read_headers(folder)
    for name, header in headers.items():
        if header.precision not in PRECISIONS:
            raise ConfigurationError(
                f"policy.model {folder} must hold weights in float32, float16 or bfloat16; {name} is "
                f"{header.precision}, of quantised weights, which cannot be trained: choose the model they are of",
                "TW-quantised-weights",
            )
    dimensions = configured_dimensions(values)
    if dimensions is None:
        _require_loadable(folder, headers)
        return
    shapes = {name: header.shape for name, header in headers.items() if not IGNORED.search(name)}
    expected = dict(dimensions.shapes)
    if OUTPUT_LAYER not in expected and OUTPUT_LAYER in shapes:  # tied to the embedding, and saved all the same
        expected[OUTPUT_LAYER] = expected["model.embed_tokens.weight"]
    _require_equal(folder, FAMILIES[values["model_type"]].architecture, shapes, expected)


def require_finite_weights(folder: Path) -> None:
    """Raise ConfigurationError where a weight of the folder is not a number, or infinite. Every file is read."""
    import torch
    from safetensors import safe_open

    for file in _weight_files(folder):
        with safe_open(file, framework="pt") as opened:
            for name in list(opened.keys()):
                tensor = opened.get_tensor(name)
                if tensor.numel() and not torch.stack(torch.aminmax(tensor)).isfinite().all():
                    raise ConfigurationError(
                        f"policy.model {folder} must hold finite weights; {name} has some that are not a number or are "
                        "infinite: it was saved from a training that had failed, or is damaged; choose an earlier one",
                        "TW-not-finite",
                    )


def _require_language_model(folder: Path, values: Mapping[str, Any]) -> None:
    if (quantised := values.get("quantization_config")) is not None:
        method = quantised.get("quant_method", "some method") if isinstance(quantised, dict) else quantised
        raise ConfigurationError(
            f"policy.model {folder} must hold weights that can be trained; its config.json says that they are "
            f"quantised ({method}): choose the model that was quantised",
            "TW-quantised-weights",
        )
    architectures = values.get("architectures") or []
    if architectures and all(OTHER_TASK.search(str(name)) for name in architectures):
        raise ConfigurationError(
            f"policy.model must be a causal language model; {folder / 'config.json'} is of the architecture "
            f"{architectures[0]}, with another head: choose the language model that it was made from",
            "TW-not-a-decoder",
        )


def _read_headers(folder: Path) -> dict[str, _Header]:
    """The tensors of all files of weights, by name. Raises ConfigurationError for a file that is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    headers: dict[str, _Header] = {}
    for file in _weight_files(folder):
        try:
            with safe_open(file, framework="numpy") as opened:
                for name in list(opened.keys()):
                    part = opened.get_slice(name)
                    headers[name] = _Header(file.name, tuple(part.get_shape()), part.get_dtype())
        except (OSError, SafetensorError) as error:
            raise ConfigurationError(
                f"policy.model: {file} must be whole; {error}: download it again", "TW-incomplete-weights"
            ) from error
    if not headers:
        raise ConfigurationError(
            f"policy.model: {folder / WEIGHTS_FILE} must hold weights; found none", "TW-missing-weights"
        )
    return headers


def _weight_files(folder: Path) -> list[Path]:
    """The files of weights that transformers reads: the one, or those that the index names."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    try:
        names = sorted(set(json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(
            f"policy.model {folder}: {INDEX_FILE} must name the file of every tensor; it cannot be read "
            f"({type(error).__name__}): download it again",
            "TW-incomplete-weights",
        ) from error
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ConfigurationError(
            f"policy.model {folder} must hold every file of weights that {INDEX_FILE} names; {len(missing)} of "
            f"{len(names)} are missing, {missing[0]} among them: download it again",
            "TW-incomplete-weights",
        )
    return [folder / name for name in names]


def _require_loadable(folder: Path, headers: Mapping[str, _Header]) -> None:
    """Have transformers report what it would not find, not use, or not fit, of an architecture of any kind."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what it warns of is refused below
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            trust_remote_code=False,
            device_map="meta",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ConfigurationError(
            f"policy.model {folder}: transformers must be able to read it; {first_line(error)}", "TW-unreadable-model"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    shapes = {name: header.shape for name, header in headers.items()}
    odd = {entry[0]: entry[1:3] for entry in report["mismatched_keys"]}
    unexpected = [name for name in report["unexpected_keys"] if not IGNORED.search(name)]
    _refuse(folder, type(model).__name__, len(shapes), report["missing_keys"], unexpected, odd)


def _require_equal(folder: Path, architecture: str, shapes: Shapes, expected: Shapes) -> None:
    different = {
        name: (shapes[name], expected[name]) for name in expected if name in shapes and shapes[name] != expected[name]
    }
    missing = [name for name in expected if name not in shapes]
    _refuse(folder, architecture, len(expected), missing, [name for name in shapes if name not in expected], different)


def _refuse(
    folder: Path,
    architecture: str,
    number: int,
    missing: Iterable[str],
    unexpected: Iterable[str],
    different: Mapping[str, tuple[Any, Any]],
) -> None:
    """Raise ConfigurationError where tensors are missing, unexpected or different; else return."""
    missing, unexpected = list(missing), list(unexpected)
    problems = []
    if missing:
        problems.append(f"{len(missing)} of {number} tensors {_are(missing)} missing ({_first(missing)})")
    if unexpected:
        problems.append(f"{len(unexpected)} {_are(unexpected)} unexpected ({_first(unexpected)})")
    if different:
        shapes = [
            f"{name} is {_shape(actual)} and not {_shape(expected)}" for name, (actual, expected) in different.items()
        ]
        problems.append(f"{len(different)} {'has' if len(different) == 1 else 'have'} another shape ({_first(shapes)})")
    if problems:
        raise ConfigurationError(
            f"policy.model {folder} must hold the weights of the {architecture} that its config.json describes; "
            f"{', '.join(problems)}: {_remedy(missing, unexpected, different)}",
            "TW-foreign-weights",
        )


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _remedy(missing: Sequence[str], unexpected: Sequence[str], different: Mapping[str, Any]) -> str:
    """What to do about these tensors, by what most probably happened to them."""
    for wrapper, remedy in WRAPPERS.items():
        if any(wrapper in name for name in unexpected) and missing:
            return remedy
    if any(".lora_" in name for name in unexpected):
        return "an adapter's tensors are among them: save what its merge_and_unload() returns"
    if heads := [name for name in unexpected if HEADS.search(name)]:
        return (
            f"{heads[0]} is another head than a language model's: choose the language model that it was made from, or "
            "save that alone"
        )
    if missing and {f"model.{name}" for name in unexpected}.intersection(missing):
        return "they were saved from a model without an output layer: load and save it by AutoModelForCausalLM"
    if list(missing) == [OUTPUT_LAYER] and not unexpected:
        return (
            "save it by AutoModelForCausalLM; where the embedding is its output layer, set tie_word_embeddings to true"
        )
    if different and not missing and not unexpected:
        return "its config.json is another model's: take the one that the weights were published with"
    return "take the weights and the config.json of one model, as save_pretrained writes them"
