"""What the tests of stages share: small artifacts, made once for a test process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage_samples import Small, rollout_parameters, tiny
from traced_stages import traced

from tasks.caching import all_dependencies
from tasks.prepare.materials import (
    DemonstrationParameters,
    PolicyParameters,
    TokenizerParameters,
    demonstrations,
    initial_policy,
    task_set,
    tokenizer,
)
from tasks.rollout.rollout import rollout
from turnwise.training_runs.state import TaskSetParameters, play_parameters
from turnwise.world import SPLITS


@pytest.fixture(scope="session")
def small_home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Path]:
    """The small artifacts, and the home that holds them and no more."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder))
        chosen = tiny()
        task_sets = {
            split: task_set.fn(TaskSetParameters(world=chosen.world, split=split, tasks=6)) for split in SPLITS
        }
        shown = demonstrations.fn(
            DemonstrationParameters(**dict(play_parameters(chosen)), seed=0, count=12, noise=0.0),
            task_set=task_sets["train"],
        )
        made = tokenizer.fn(
            TokenizerParameters(pretrained=None, vocabulary=chosen.policy.vocabulary, format=chosen.agent.format),
            demonstrations=shown,
        )
        policy = initial_policy.fn(
            PolicyParameters.of(chosen.policy, None, chosen.agent.context_tokens), tokenizer=made
        )
        sampled = rollout.fn(
            rollout_parameters(play_parameters(chosen), chosen.compute, group_size=3),
            policy=policy,
            tokenizer=made,
            task_set=task_sets["train"],
        )
    return Small(chosen, task_sets, shown, made, policy, sampled), folder


@pytest.fixture
def small(small_home: tuple[Small, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """The small artifacts, in a home of the test's own."""
    shutil.copytree(small_home[1], tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    return small_home[0]


@pytest.fixture(autouse=True)
def keys_cover_what_runs() -> Iterator[None]:
    """Whatever a test runs of a stage of this package is in the stage's cache key, or `MAY_ALSO_RUN` says why not."""
    stages = {name: stage for name, stage in all_dependencies().items() if stage.kernel is not None}
    with traced(stages) as runs:
        yield
    uncovered = {run.stage.name: run.uncovered() for run in runs}
    assert {name: modules for name, modules in uncovered.items() if modules} == {}, (
        "a result depends on code that is not in the cache key of its stage: declare its module in the stage's kernel, "
        "or, where it cannot change the result, say so in MAY_ALSO_RUN of traced_stages.py"
    )
