"""All that lies in a home has the mode that the umask asks for, whoever wrote it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from turnwise.store import MANIFEST, Store


@pytest.fixture(params=[0o002, 0o022, 0o077], ids=["group writes", "group reads", "private"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_every_file_of_the_store_follows_the_umask(tmp_path: Path, umask: int) -> None:
    store = Store(tmp_path / "store")
    with store.write("policy") as draft:
        (draft.folder / "optimizer").mkdir(mode=0o700)
        save_file({"weights": np.zeros(3, np.float32)}, draft.folder / "model.safetensors")
        save_file({"moments": np.zeros(3, np.float32)}, draft.folder / "optimizer" / "adamw.safetensors")
        os.chmod(draft.folder / "model.safetensors", 0o755)
    store.record_clock(draft.reference, {"seconds": 1.0})
    store.record_lineage(draft.reference, "a" * 32, {"stage": "update"})
    with store.write("policy") as copy:
        (tmp_path / "private").mkdir(mode=0o700)
        shutil.copytree(tmp_path / "private", copy.folder, dirs_exist_ok=True)
        shutil.copytree(
            store.folder(draft.reference), copy.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
        copy.metrics["skipped"] = 1.0
    paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert len(paths) > 15
    for path in paths:
        expected = (0o777 if path.is_dir() else 0o666) & ~umask
        assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(expected), path
