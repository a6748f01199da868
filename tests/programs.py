"""The programs that some tests need and a machine may lack.

A test says which: `@pytest.mark.needs("java")`, on a function, as a module's `pytestmark`, or as a parameter's mark.
Where one is missing it is skipped, before any of its fixtures is made (tests/conftest.py). What is only known while a
test runs asks `skip_without`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envs.browser.chromium import DEBIAN_BROWSERS, find_chromium

COMPILER = os.environ.get("CXX", "g++")
"""With which torch compiles."""
POSTGRESQL = Path("/usr/lib/postgresql/15/bin")
"""Where Debian has the programs of the server."""


@dataclass(frozen=True)
class Program:
    """How a program is looked for, and what to do where it is missing."""

    is_there: Callable[[], bool]
    advice: str


def _on_path(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _has_chromium() -> bool:
    try:
        find_chromium(None)
    except ValueError:
        return False
    return True


def agents_python() -> str | None:
    """The Python of an environment with OpenAI's agents, which asks for another openai than vLLM does."""
    return os.environ.get("TURNWISE_AGENTS_PYTHON") or None


PROGRAMS: Mapping[str, Program] = {
    "both builds of chromium": Program(
        lambda: all(map(shutil.which, DEBIAN_BROWSERS)), "apt-get install chromium-headless-shell chromium"
    ),
    "chromium": Program(_has_chromium, "apt-get install --no-install-recommends chromium-headless-shell"),
    "curl": Program(_on_path("curl"), "apt-get install curl"),
    "docker": Program(_on_path("docker"), "apt-get install docker.io"),
    "g++": Program(_on_path(COMPILER), "apt-get install g++"),
    "java": Program(_on_path("java"), "apt-get install --no-install-recommends default-jre-headless"),
    "openai-agents": Program(
        lambda: agents_python() is not None,
        "pip install openai-agents in an environment of its own, and TURNWISE_AGENTS_PYTHON naming its python",
    ),
    "postgresql": Program(lambda: (POSTGRESQL / "initdb").exists(), "apt-get install postgresql-15"),
}


def missing(*names: str) -> str | None:
    """Why a test with these needs is skipped here; None: it is not. Raises KeyError for a program not in the list."""
    lacking = [name for name in names if not PROGRAMS[name].is_there()]
    return "; ".join(f"needs {name}: {PROGRAMS[name].advice}" for name in lacking) or None


def skip_without(*names: str) -> None:
    """Skip the running test where one of these programs is missing."""
    if reason := missing(*names):
        pytest.skip(reason)
