"""Prefect's server on this machine is asked without a proxy, whatever proxies the environment names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flows.runtime.server import bypass_proxies, is_direct

A_FLOW_RUN = """
from rich.console import Console
from flows.runtime.flow_runs import ready_for_prefect, run_flow

ready_for_prefect(Console(quiet=True))

from prefect import flow

@flow(name="one")
def one() -> int:
    return 1

print(run_flow(one))
"""
PROXIES = (
    {"ALL_PROXY": "socks5://127.0.0.1:9"},
    {"HTTPS_PROXY": "socks5h://127.0.0.1:9"},
    {"all_proxy": "socks://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"},
)


@pytest.mark.parametrize("proxies", PROXIES, ids=str)
@pytest.mark.parametrize("exceptions", [{}, {"NO_PROXY": "localhost,127.0.0.1", "no_proxy": ""}], ids=str)
def test_a_flow_runs_whatever_proxies_the_environment_names(
    prefect_server: str, proxies: dict[str, str], exceptions: dict[str, str]
) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", A_FLOW_RUN], env={**inherited, **proxies, **exceptions}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("upper", ["example.org, localhost", ""])
def test_a_proxy_is_not_asked_for_this_machine(upper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", upper)
    monkeypatch.setenv("no_proxy", "example.org,localhost")
    bypass_proxies()
    bypass_proxies()
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "example.org,localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("http://127.0.0.1:4200/api", True),
        ("http://127.5.0.1:4200/api", True),
        ("http://localhost:4200/api", True),
        ("http://[::1]:4200/api", True),
        ("http://prefect.lab:4200/api", True),
        ("http://prefect.example:4200/api", False),
        ("", False),
    ],
)
def test_a_server_is_direct_on_this_machine_or_where_no_proxy_names_it(
    url: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", ".lab")
    assert is_direct(url) == direct
