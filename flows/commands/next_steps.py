"""What to look at after an ablation: commands that work in the folder in which it was run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

MODULES = {"turnwise": "flows.commands.cli", "pytest": "pytest"}
"""The programs of an environment, by the modules that Python runs where the program itself is missing."""


def own_command(program: str = "turnwise", folder: Path | None = None) -> str:
    """How a program of this environment is given from a folder, by default this one: by its name where the shell finds
    it by that, else by its path, below the folder without what leads to it.
    """
    script, here = Path(sys.executable).with_name(program), (folder or Path()).resolve()
    installed = shutil.which(program)
    if installed is not None and Path(installed).parent == script.parent:
        return program
    if not script.exists():
        return f"{sys.executable} -m {MODULES[program]}"
    return os.path.relpath(script, here) if script.is_relative_to(here) else str(script)


def next_steps(ablation: str, variants: Sequence[str], seeds: Sequence[int], heading: str) -> list[str]:
    """Commands that show episodes, the comparison, where its first number comes from, and all runs in MLflow.

    `heading` is that of the table's first column.
    """
    run = f"{ablation}/{variants[0]} seed {seeds[0]}"
    compared = [f"compare {ablation}"] if len(variants) > 1 else []
    steps = [f'show "{run}" --limit 2', *compared, f'lineage "{variants[0]}/{heading}"', "ui"]
    return [f"{own_command()} {step}" for step in steps]
