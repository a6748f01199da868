"""A lost head of a Ray cluster is noticed before Ray ends the process; its token is shown where there is one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flows.workers import ray_cluster
from flows.workers.ray_cluster import SECONDS_WITHOUT_HEAD, RayHead, token_mode
from tests.own_view import let_see


def test_a_head_is_lost_when_it_has_not_answered_for_a_while_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    let_see(monkeypatch, ray_cluster, "time", monotonic=lambda: now[0])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        head = RayHead(f"127.0.0.1:{listening.getsockname()[1]}")
        now[0] = 100.0
        assert head.loss() == "", "it answers"
    now[0] += SECONDS_WITHOUT_HEAD - 1
    assert head.loss() == "", "it may be starting again"
    now[0] += 2
    assert "its head has not answered for 21 s" in head.loss()


def test_a_token_is_shown_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert token_mode() == {}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("abc")
    assert token_mode() == {"RAY_AUTH_MODE": "token"}
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    assert token_mode() == {"RAY_AUTH_MODE": "token"}
