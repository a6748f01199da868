"""A policy as it is published: weights rounded to bfloat16, half the size of what was trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from turnwise.policy.model_files import model_files


def publish_weights(policy: Path, folder: Path) -> None:
    """Write the policy in the folder `policy`, whose weights are in one file, into `folder`, rounded to bfloat16."""
    for path in model_files(policy):
        if path.suffix == ".safetensors":
            rounded = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()}
            save_file(rounded, folder / path.name, metadata={"format": "pt"})
        elif path.name == "config.json":
            values = {**json.loads(path.read_text()), "dtype": "bfloat16"}
            (folder / path.name).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
        else:
            shutil.copyfile(path, folder / path.name)
