"""The files of a policy in a folder in Hugging Face's layout."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

WHOLE_FILES = ("config.json", "generation_config.json", "model*.json", "model*.safetensors")
"""Patterns of the configuration and of the weights."""
MODEL_FILES = (*WHOLE_FILES, "adapter/*")
"""Patterns of the files that sampling and scoring read: of an adapter's policy, the adapter in place of the weights."""
POLICY, CRITIC = "policy 1", "critic 1"
"""The layout of their folders. It is in the cache key of who writes them: a changed layout gets another number."""


def model_files(folder: Path) -> list[Path]:
    """The paths of the configuration and of the weights, in one file or several, sorted by name."""
    return [
        path for path in sorted(folder.iterdir()) if any(fnmatchcase(path.name, pattern) for pattern in WHOLE_FILES)
    ]
