"""What of an uncommitted diff reaches the tracking store, which others may read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_run_environment import git

from turnwise.store import run_environment
from turnwise.store.withheld import MARKER, has_secret_name, holds_secret, left_out_of, recordable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with changes of every kind."""
    git(tmp_path, "init")
    (tmp_path / "params.yaml").write_text("tracking:\n  uri: ''\nrollout:\n  group_size: 8\n")
    (tmp_path / "old.py").write_text("old = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "params.yaml").write_text(
        "tracking:\n  uri: postgresql://me:hunter2@database/mlflow\nrollout:\n  group_size: 4\n"
    )
    (tmp_path / "old.py").write_text("old = 2\n")
    (tmp_path / "new.py").write_text("new = 1\n")
    (tmp_path / "secrets.yaml").write_text("service: open-sesame\n")
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "credentials.toml").write_text("user = 'open-sesame'\n")
    return tmp_path


def test_new_files_and_what_looks_secret_are_told_by_name_alone(project: Path) -> None:
    recorded = recordable(run_environment.uncommitted_diff(project), new_files=False)
    assert "sesame" not in recorded and "hunter2" not in recorded and "new = 1" not in recorded
    assert "+old = 2" in recorded and "+  group_size: 4" in recorded and f"+{MARKER}" in recorded
    assert recorded.splitlines()[0] == (
        "# Left out: deploy/credentials.toml (its name looks secret), "
        "new.py (a new file: commit it, or set tracking.new_files), 1 line of params.yaml (looks secret), "
        "secrets.yaml (its name looks secret)"
    )


def test_new_files_are_recorded_when_asked_for_and_secrets_never(project: Path) -> None:
    recorded = recordable(run_environment.uncommitted_diff(project), new_files=True)
    assert "+new = 1" in recorded and "sesame" not in recorded and "hunter2" not in recorded
    assert left_out_of(recorded) is not None and "new.py" not in str(left_out_of(recorded))


def test_the_digest_counts_new_code_that_is_not_recorded(project: Path) -> None:
    state = run_environment.code_state(project)["uncommitted"]
    assert state == run_environment.digest_of(run_environment.uncommitted_diff(project)) != "none"
    run_environment.code_state.cache_clear()
    (project / "new.py").write_text("new = 2\n")
    assert run_environment.code_state(project)["uncommitted"] != state


def test_what_leaves_nothing_out_is_recorded_as_it_is_and_what_does_still_applies(project: Path) -> None:
    (project / "params.yaml").unlink()
    whole = recordable(run_environment.uncommitted_diff(project), new_files=True)
    for name in ("secrets.yaml", "deploy/credentials.toml"):
        (project / name).unlink()
    diff = run_environment.uncommitted_diff(project)
    assert recordable(diff, new_files=True) == diff and left_out_of(diff) is None
    git(project, "stash", "--include-untracked")
    subprocess.run(["git", "apply", "-"], input=whole.encode(), cwd=project, check=True)
    assert (project / "new.py").read_text() == "new = 1\n" and not (project / "params.yaml").exists()


def test_a_moved_file_is_a_new_file_and_a_setting_of_git_changes_nothing(project: Path) -> None:
    git(project, "config", "diff.noprefix", "true")
    git(project, "config", "color.ui", "always")
    (project / "old.py").write_text("long = 1\n" * 50)
    git(project, "commit", "-am", "second")
    (project / "old.py").rename(project / "moved.py")
    recorded = recordable(run_environment.uncommitted_diff(project), new_files=False)
    assert "moved.py (a new file" in recorded and "+long = 1" not in recorded and "-long = 1" in recorded


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".env.local",
        "production.env",
        "secrets.yaml",
        "my_secret.py",
        "a/credentials/b.toml",
        "token.txt",
        "hf_token",
        "api-tokens.json",
        "server.pem",
        "host.key",
        "id_ed25519",
        "id_rsa.pub",
        ".netrc",
        "Passwords.yaml",
    ],
)
def test_names_that_look_secret(name: str) -> None:
    assert has_secret_name(name)


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2",
        "  api_key: 'x1'",
        'PASSWORD = "hunter2"',
        'client(secret="x")',
        "export HF_TOKEN=abcdefghijk",
        'headers["access-key"] = "abc"',
        'token = "abcdefgh1234"',
        "auth_token: abcdefgh1234 # mine",
        "curl -H 'Authorization: Bearer abcdefgh1234'",
        "uri: mysql+pymysql://me:pw@host/db",
        "x = 'sk-proj-abcdefghijklmnop'",
        "hf_abcdefghijklmnopqrstuv",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCY4321EXAMPLEKEY",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln",
    ],
)
def test_lines_that_look_secret(line: str) -> None:
    assert holds_secret(line)


def test_a_private_key_is_left_out_to_its_end() -> None:
    key = ["-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaA", "-----END OPENSSH PRIVATE KEY-----", "after"]
    lines = ["diff --git a/notes.md b/notes.md", "--- a/notes.md", "+++ b/notes.md", "@@ -0,0 +1,4 @@"]
    recorded = recordable("\n".join([*lines, *(f"+{line}" for line in key), ""]), new_files=False)
    assert recorded.splitlines()[5:] == [*[f"+{MARKER}"] * 3, "+after"]


def test_code_about_tokens_is_recorded_whole() -> None:
    listed = git(ROOT, "ls-files", "*.py", "*.yaml", "*.md", "*.toml").splitlines()
    assert [name for name in listed if has_secret_name(name)] == []
    lines = [(name, line) for name in listed for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line]
    found = [(name, line) for name, line in lines if holds_secret(line, python=name.endswith(".py"))]
    assert sum("token" in line for _, line in lines) > 1000
    assert len(found) < len(lines) / 1000, found
