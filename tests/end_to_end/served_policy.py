"""An exported policy under vLLM's own server on the loopback, and what is asked of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.runtime.server import free_port

START_SECONDS = 400
"""More than a server takes to start on a busy machine."""
TIE = 1e-3
"""Logits that are closer than this may be ordered otherwise by other kernels."""


@contextmanager
def served(folder: Path, log_file: Path, *options: str) -> Iterator[str]:
    """The address at which vLLM serves the policy in a folder under the name `policy`; skips where there is no vLLM.

    The module is what the command `vllm serve` runs; that command itself needs vLLM under its own package name, which
    the build for CPUs does not have.
    """
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    port = free_port()
    arguments = ["--model", str(folder), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "policy"]
    arguments += ["--dtype", "float32", "--enforce-eager", "--kv-cache-memory-bytes", str(64 * 2**20), *options]
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1"}
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments],
            env={**os.environ, **offline},
            stdout=log,
            stderr=log,
        )
    try:
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
        while not answers(f"{address}/health"):
            ended = process.poll() is not None
            assert not ended and time.monotonic() < until, log_file.read_text()
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def answers(address: str) -> bool:
    """Whether a server answers there that all is well."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(address: str, **request: Any) -> Any:
    """The one choice in a server's answer to a greedy request."""
    body = json.dumps({"model": "policy", "temperature": 0, "return_token_ids": True, **request}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(address, body, {"Content-Type": "application/json"}), timeout=120
    ) as answer:
        return json.load(answer)


def require_greedy(model: Any, context: Sequence[int], reply: Sequence[int]) -> None:
    """Each token of the reply has the model's largest logit, or is level with it."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*context, *reply]])).logits[0, len(context) - 1 : -1]
    lacking = logits.max(-1).values - logits[torch.arange(len(reply)), list(reply)]
    assert float(lacking.max()) < TIE
