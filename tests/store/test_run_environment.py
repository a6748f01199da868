"""The platform names what bits depend on; the commit and the diff are those of the working tree."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from turnwise.store import run_environment


def test_the_platform_names_kernels_and_versions_and_no_model_of_processor() -> None:
    platform = run_environment.platform()
    assert platform["packages"]["torch"] == importlib.metadata.version("torch")
    assert "absent" not in platform["packages"].values()
    assert set(platform["processor"]["flags"]) <= run_environment.KERNEL_FLAGS
    if sys.platform == "linux" and "avx2" in Path("/proc/cpuinfo").read_text():
        assert "avx2" in platform["processor"]["flags"]


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from turnwise.store import fingerprint, run_environment; "
        "run_environment.platform(); fingerprint.fingerprint(['turnwise.world']); "
        "print([name for name in ('torch', 'vllm', 'prefect', 'mlflow', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_uncommitted_diff_holds_changes_and_new_sources_and_leaves_the_index_alone(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "old.py").write_text("old = 1\n")
    git(tmp_path, "add", "old.py")
    git(tmp_path, "commit", "-m", "first")
    assert run_environment.commit(tmp_path) == git(tmp_path, "rev-parse", "HEAD")
    assert run_environment.uncommitted_diff(tmp_path) == ""
    (tmp_path / "old.py").write_text("old = 2\n")
    (tmp_path / "new.py").write_text("new = 1\n")
    (tmp_path / "data.bin").write_bytes(b"\x00" * 100)
    (tmp_path / "inner").mkdir()
    before = git(tmp_path, "status", "--porcelain")
    diff = run_environment.uncommitted_diff(tmp_path / "inner")
    assert "+old = 2" in diff and "+new = 1" in diff and "data.bin" not in diff
    assert git(tmp_path, "status", "--porcelain") == before
    git(tmp_path, "stash", "--include-untracked")
    subprocess.run(["git", "apply"], input=diff.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "new.py").read_text() == "new = 1\n"
    assert run_environment.code_state(tmp_path)["uncommitted"] == run_environment.digest_of(diff)


def test_what_is_staged_counts_as_it_lies_in_the_folder_and_what_git_was_told_to_overlook_is_seen(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init")
    for name in ("edited.py", "overlooked.py", "unstaged.py"):
        (tmp_path / name).write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "edited.py").write_text("a = 2\n")
    (tmp_path / "data.bin").write_bytes(b"1")
    git(tmp_path, "add", "edited.py", "data.bin")
    git(tmp_path, "rm", "--quiet", "--cached", "unstaged.py")
    (tmp_path / "edited.py").write_text("a = 3\n")
    staged = run_environment.uncommitted_diff(tmp_path)
    assert "+a = 3" in staged and "a = 2" not in staged and "data.bin" not in staged and "unstaged.py" not in staged
    git(tmp_path, "update-index", "--assume-unchanged", "overlooked.py")
    (tmp_path / "overlooked.py").write_text("a = 4\n")
    assert "+a = 4" in run_environment.uncommitted_diff(tmp_path)


def test_results_and_pages_are_no_code(tmp_path: Path) -> None:
    git(tmp_path, "init")
    told = [tmp_path / name for name in ("results/credit/table.csv", "docs/science/data/ragen.json", "dvc.lock")]
    for path in told:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    told[0].write_text("2\n")
    told[1].unlink()  # as DVC does before it makes it again
    told[2].write_text("2\n")
    assert run_environment.uncommitted_diff(tmp_path) == ""


def test_outside_of_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert run_environment.commit(tmp_path) is None
    assert run_environment.uncommitted_diff(tmp_path) == ""
    assert run_environment.code_state(tmp_path) == {"commit": "none", "uncommitted": "none"}
