"""Which files of a folder are a policy, in Hugging Face's layout."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

MODEL_FILES = ("config.json", "generation_config.json", "model*.json", "model*.safetensors")
"""Patterns of the configuration and the weights: what sampling and scoring read."""


def model_files(folder: Path) -> list[Path]:
    """The configuration and the weights, whole or in parts, in order of their names."""
    return [
        path for path in sorted(folder.iterdir()) if any(fnmatchcase(path.name, pattern) for pattern in MODEL_FILES)
    ]
