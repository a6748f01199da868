"""Play the same episodes in another process under another hash seed: a difference is not a function of the seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from turnwise.checking.report import Broken

SECONDS = 600.0
"""Time limit of the other process, including its start and making the world."""


def digests_elsewhere(
    world: str, parameters: Mapping[str, Any], count: int, seed: int, hash_seed: str
) -> dict[str, str]:
    """The result of `playing.digests` in a new process with this one's module search path and the given hash seed.

    Raises Broken when the world cannot be made or played there, and subprocess.TimeoutExpired after `SECONDS`.
    """
    given = [world, json.dumps(dict(parameters)), "--count", str(count), "--seed", str(seed)]
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    finished = subprocess.run(
        [sys.executable, "-m", "turnwise.checking", *given],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise Broken(f"the world must be playable in another process; there {world} ended with: {last}")
    found: dict[str, str] = json.loads(finished.stdout.strip().splitlines()[-1])
    return found
