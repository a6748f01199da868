"""What holds with AVX-512 holds without: the tests that are marked `kernels`, again, with the kernels of AVX2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.store import run_environment

ROOT = Path(__file__).parents[2]
HELD_TO_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL",
}


def test_the_variables_are_part_of_the_platform() -> None:
    assert set(HELD_TO_AVX2) <= set(run_environment.KERNEL_VARIABLES)


@pytest.mark.skipif(
    "avx512f" not in run_environment.platform()["processor"]["flags"],
    reason="here every test computes with such kernels",
)
def test_what_holds_with_avx_512_holds_without() -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "kernels", "-p", "no:cacheprovider"]
    marked = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.kernels" in path.read_text()]
    assert len(marked) > 3  # to collect the other files would take longer than some of these tests
    finished = subprocess.run(
        [*command, *marked],
        cwd=ROOT,
        env={**own, **HELD_TO_AVX2},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
