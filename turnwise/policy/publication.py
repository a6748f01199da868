"""A policy as it is published: in Hugging Face's layout, for transformers and vLLM; as a base policy in bfloat16."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from turnwise.policy.model import name_precision
from turnwise.policy.model_files import model_files
from turnwise.policy.tokenizer import GENERATION_FILE, load_frame
from turnwise.store import MANIFEST


def publish_weights(policy: Path, folder: Path) -> None:
    """Write the policy in the folder `policy`, whose weights are in one file, into `folder`, rounded to bfloat16."""
    for path in model_files(policy):
        if path.suffix == ".safetensors":
            rounded = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()}
            save_file(rounded, folder / path.name, metadata={"format": "pt"})
        else:
            shutil.copyfile(path, folder / path.name)
    name_precision(folder, "bfloat16")


def export_policy(policy: Path, tokenizer: Path, folder: Path, *, temperature: float) -> None:
    """Write a policy, whose files are in `policy` and `tokenizer`, into the empty `folder` as others read it.

    The weights are those that were trained, with an adapter merged. The generation configuration names the end tokens
    of an episode, and as defaults the distribution that training sampled from: `temperature`, with nothing cut off.
    """
    for path in [*model_files(policy), *tokenizer.iterdir()]:
        if path.name not in (GENERATION_FILE, MANIFEST):
            shutil.copyfile(path, folder / path.name)
    frame = load_frame(tokenizer)
    GenerationConfig(
        bos_token_id=frame.tokenizer.bos_token_id,
        eos_token_id=list(frame.end_tokens),
        pad_token_id=frame.tokenizer.pad_token_id,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
    ).save_pretrained(folder)
