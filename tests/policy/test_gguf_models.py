"""A GGUF becomes a folder of the model that it holds, as exact as its own precision, and to the byte each time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf_samples import POSITIONS, write_gguf
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from turnwise.errors import ConfigurationError
from turnwise.policy.gguf_models import CONVERSION_FILE, convert, in_words, read_header, require_gguf
from turnwise.policy.published import ModelUse, require_usable
from turnwise.policy.sizes import configured_dimensions, count
from turnwise.policy.tokenizer import load_frame
from turnwise.store.digests import sha256_of

PRECISIONS = [gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")]


def converted(path: Path, folder: Path) -> Path:
    folder.mkdir()
    convert(path, folder, sha256_of(path))
    return folder


@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda each: each.name)
def test_weights_are_those_of_the_file_dequantised(tmp_path: Path, precision: gguf.GGMLQuantizationType) -> None:
    model = write_gguf(tmp_path / "model.gguf", precision)
    folder = converted(tmp_path / "model.gguf", tmp_path / "folder")
    read = load_file(folder / "model.safetensors")
    assert read.keys() == model.state_dict().keys() - {"lm_head.weight"}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        expected = tensor.numpy()
        if expected.ndim == 2 and not ("q_proj" in name or "k_proj" in name):  # those are rounded in another order
            rounded = gguf.quantize(np.ascontiguousarray(expected), precision)
            assert np.array_equal(read[name].numpy(), gguf.dequantize(rounded, precision)), name
        assert read[name].dtype == torch.float32 and np.allclose(read[name].numpy(), tensor.numpy(), atol=0.02)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    require_usable(folder, ModelUse("embedded", POSITIONS))


def test_the_converted_model_computes_what_the_model_computed(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "model.gguf")
    folder = converted(tmp_path / "model.gguf", tmp_path / "folder")
    tokens = torch.tensor([[5, 60, 70, 80]])
    with torch.inference_mode():
        before, after = (each(tokens).logits for each in (model, LlamaForCausalLM.from_pretrained(folder)))
    assert torch.allclose(before, after, atol=1e-5)
    frame = load_frame(folder)
    assert frame.decode(frame.reply("a text to learn from")) == "a text to learn from"


def test_the_same_content_gives_the_same_bytes_whatever_its_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", gguf.GGMLQuantizationType.Q4_0)
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "model.gguf", tmp_path / "elsewhere" / "another name.gguf")
    folders = [
        converted(path, tmp_path / f"folder {number}")
        for number, path in enumerate((tmp_path / "model.gguf", tmp_path / "elsewhere" / "another name.gguf"))
    ]
    first, second = ({path.name: sha256_of(path) for path in folder.iterdir()} for folder in folders)
    assert first == second
    recorded = json.loads((folders[0] / CONVERSION_FILE).read_text())
    assert recorded["content"] == sha256_of(tmp_path / "model.gguf")
    assert in_words(recorded["precisions"]) == "Q4_0 (15 tensors), F32 (5)"


def test_the_header_tells_the_sizes_and_the_template(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "model.gguf", gguf.GGMLQuantizationType.Q8_0)
    header = read_header(tmp_path / "model.gguf")
    dimensions = configured_dimensions(header.configuration)
    assert dimensions is not None and header.tied
    assert count(dimensions.shapes) == sum(each.numel() for each in model.parameters())
    assert header.configuration["max_position_embeddings"] == POSITIONS
    assert header.chat_template is not None and "<|im_start|>" in header.chat_template
    assert in_words(header.precisions) == "Q8_0 (15 tensors), F32 (5)"


def refused(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        require_gguf(path)
    assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, template=None)
    assert "must have a chat template" in refused(path)
    write_gguf(path, architecture="own")
    assert "of 'own'" in refused(path)
    path.write_bytes(b"no GGUF at all")
    assert "does not begin as one" in refused(path)
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 64)  # texts of 2^64 - 1 bytes
    assert "must be a whole GGUF file" in refused(path)
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:3000])
    assert "must be a whole GGUF file" in refused(path)
