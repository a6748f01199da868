"""Environments of verifiers, installed from the package index into a Python environment of their own, and played."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.verifiers_service import end_process, start_service
from turnwise.checking import check_world
from turnwise.checking.playing import at_the_start
from turnwise.errors import ConfigurationError
from turnwise.world import Environment, World, make_world

pytestmark = pytest.mark.timeout(1500)

CORRIDOR = """
import itertools
import verifiers.v1 as vf

__all__ = ["Corridor", "CorridorEnv"]


class Config(vf.TasksetConfig):
    cells: int = 3


class Corridor(vf.Taskset[vf.Task, Config]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            yield vf.Task(vf.TaskData(prompt=f"Corridor {number}. Say: go."), self.config.task)


class CorridorConfig(vf.EnvConfig):
    walker: vf.AgentConfig = vf.AgentConfig()


class CorridorEnv(vf.Env[CorridorConfig]):
    async def run(self, task, agents):
        cell, cells = 0, self.config.taskset.cells
        async with agents.walker.interaction(task) as walk:
            said = await walk.turn()
            while cell < cells and said.last_reply == "go":
                cell += 1
                if cell < cells:
                    said = await walk.turn(f"You are in cell {cell}.")
        walk.trace.record_reward("arrived", float(cell == cells))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package of several turns; Python environments are made in a folder of the test's own.

    Skips, and says why, where the package index cannot be had.
    """
    folder = tmp_path_factory.mktemp("corridor")
    index = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder / "index"), "marble-v1"]
    if (reached := subprocess.run(index, capture_output=True, text=True)).returncode:
        pytest.skip(f"the package index cannot be had: {reached.stderr[-300:]}")
    (folder / "corridor_v1.py").write_text(CORRIDOR)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "corridor-v1"\nversion = "1"\n[tool.setuptools]\npy-modules = ["corridor_v1"]\n'
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield folder


@contextmanager
def served(package: Path, **settings: object) -> Iterator[dict[str, Any]]:
    """The parameters of `remote` for marble-v1, with the corridor beside it."""
    requirements = [str(package), "verifiers==0.4.0"]
    server, parameters = start_service("verifiers:marble-v1", {"requirements": requirements, **settings})
    try:
        yield parameters
    finally:
        end_process(server)


def started(world: World, place: int = 0) -> Environment:
    return world.make(world.tasks("test", place + 1)[place], 0)


def test_a_service_ends_with_the_process_that_started_it() -> None:
    script = (
        "import subprocess, time; from flows.runtime.verifiers_service import die_with_parent\n"
        "subprocess.Popen(['sleep', '600'], preexec_fn=die_with_parent)\n"
        "print('started', flush=True); time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert starter.stdout is not None and starter.stdout.readline() == b"started\n"
    starter.kill()
    starter.wait()
    assert starter.stdout.read() == b"", "the service holds the other end until it ends"
    starter.stdout.close()


def test_a_package_of_the_index_is_a_world_whose_own_solution_solves_it(package: Path) -> None:
    with served(package, solution="solution") as parameters:
        world = make_world("remote", parameters)
        assert (world.baselines, world.split_size("test")) == (("oracle",), None)
        for place, action, reward in ((0, None, 1.0), (1, None, 1.0), (0, "nothing", 0.0)):
            with closing(started(world, place)) as episode:
                assert "marble" in episode.reset().text
                solution = episode.oracle(at_the_start(world.limits)).actions[0]
                assert json.loads(solution)[0].keys() == {"kind", "x", "y", "rot"}
                last = episode.step(action or solution)
                assert (last.rewards, last.terminated, last.success) == ({"reward": reward}, True, reward == 1.0)


def test_a_rollout_of_several_turns_is_an_episode_of_as_many(package: Path) -> None:
    with served(package, environment="corridor_v1", arguments={"cells": 3}) as parameters:
        world = make_world("remote", parameters)
        with closing(started(world)) as episode:
            assert episode.reset().text == "Corridor 8. Say: go."
            assert [episode.step("go").observation.text for _ in range(2)] == [
                "You are in cell 1.",
                "You are in cell 2.",
            ]
            last = episode.step("go")
            assert (last.rewards, last.terminated, last.success) == ({"reward": 1.0}, True, True)
        with closing(started(world)) as given_up, closing(started(world)) as left:
            given_up.reset()
            left.reset()
            assert given_up.step("no").rewards == {"reward": 0.0}
        report = check_world(world, parameters=parameters, count=4, sample=1)
        assert report.passed, "\n".join(report.lines())


def test_what_verifiers_cannot_load_is_refused_with_what_it_says(package: Path) -> None:
    with pytest.raises(ConfigurationError, match="no_such_module"), served(package, environment="no_such_module"):
        pass
