"""A folder that all test processes of a session share, for what each of them needs and one is to compute."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def shared_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """The folder of this name, made where it is missing. The processes take turns in the block."""
    of_process = tmp_path_factory.getbasetemp()
    folder = (of_process.parent if "PYTEST_XDIST_WORKER" in os.environ else of_process) / name
    folder.mkdir(exist_ok=True)
    with (folder / "in_use").open("w") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        yield folder
