"""Small policies, and one vLLM engine for the whole session."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from policy_samples import CONTEXT, write_policy

from turnwise.policy.engines.contract import Engine
from turnwise.policy.engines.resident import close_resident_engine, resident_engine


@pytest.fixture(scope="session")
def make_policy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder of the caller's own with the policy of a seed, which is made once and copied from then on."""
    made: dict[tuple[int, bool], Path] = {}

    def make(seed: int, *, tied: bool = True) -> Path:
        if (seed, tied) not in made:
            made[seed, tied] = tmp_path_factory.mktemp("made")
            write_policy(made[seed, tied], seed, tied=tied)
        return shutil.copytree(made[seed, tied], tmp_path_factory.mktemp("policy"), dirs_exist_ok=True)

    return make


@pytest.fixture(scope="session")
def vllm_engine() -> Iterator[Engine]:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    yield resident_engine("vllm", threads=1, context_length=CONTEXT, maximum_episodes=16)
    close_resident_engine()
