"""Small policies, and one vLLM engine for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from policy_samples import CONTEXT, END, PAD, VOCABULARY

from turnwise.policy.engines.contract import Engine
from turnwise.policy.engines.resident import close_resident_engine, resident_engine


@pytest.fixture(scope="session")
def make_policy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A policy's folder. Deviation 0.08 makes distributions far from uniform, so that a stale weight is seen."""
    from turnwise.policy.architecture import create_policy

    def make(seed: int, *, tied: bool = True) -> Path:
        folder = tmp_path_factory.mktemp("policy")
        create_policy(
            folder,
            vocabulary_size=VOCABULARY,
            context_length=CONTEXT,
            end_token=END,
            pad_token=PAD,
            seed=seed,
            hidden=64,
            layers=2,
            heads=2,
            key_value_heads=1,
            feed_forward=128,
            initial_deviation=0.08,
            tied=tied,
        )
        return folder

    return make


@pytest.fixture(scope="session")
def vllm_engine() -> Iterator[Engine]:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    yield resident_engine("vllm", threads=1, context_length=CONTEXT, maximum_episodes=16)
    close_resident_engine()
