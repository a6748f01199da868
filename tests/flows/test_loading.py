"""What a command loads before it knows that there is anything to compute."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "mlflow", "prefect", "matplotlib")
"""Libraries that take seconds to import: who finds everything in the store should not wait for them."""


@pytest.mark.parametrize("module", ["flows.commands.running", "flows.python.running", "flows.commands.cli"])
def test_the_libraries_that_compute_are_loaded_where_something_is_computed(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
