"""What several end-to-end tests compare with: the tiny ablation, computed once for all test processes."""

from __future__ import annotations

import fcntl
import os

import pytest
from comparison import Computed, compared
from project_copy import ROOT, TINY

from turnwise.experiment import load


@pytest.fixture(scope="session")
def tiny_ablation(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """Computed by the test process that first needs it. Copy what is to be changed."""
    of_process = tmp_path_factory.getbasetemp()
    folder = (of_process.parent if "PYTEST_XDIST_WORKER" in os.environ else of_process) / "tiny_ablation"
    folder.mkdir(exist_ok=True)
    home, results, digest = (folder / name for name in ("home", "results", "digest"))
    with (folder / "computing").open("w") as computing, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(computing, fcntl.LOCK_EX)
        if not digest.exists():
            patch.setenv("TURNWISE_HOME", str(home))
            digest.write_text(compared(load(ROOT / "params.yaml", [TINY]), results).digest)
    return Computed(home, results, digest.read_text())
