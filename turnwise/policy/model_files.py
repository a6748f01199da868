"""Which files of a folder are a policy, in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

CONFIGURATIONS = ("config.json", "generation_config.json")


def model_files(folder: Path) -> list[Path]:
    """The configuration and the weights, whole or in parts, in order of their names."""
    return [path for path in sorted(folder.iterdir()) if path.name in CONFIGURATIONS or path.name.startswith("model")]
