"""Scripted baseline policies play by the same rules as a policy, and the same again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from agent_samples import Call, Disturbed, Hill, faulty, rules_for

from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, play_scripted
from turnwise.world import World, make_world

write = ThinkAnswerFormat().write
REPOSITORY = Path(__file__).resolve().parents[2]


def scripted(world: World, baseline: str | Callable[[int, int], str], tasks: int = 5, seed: int = 0) -> RolloutResult:
    choose = baseline if callable(baseline) else lambda index, turn: baseline
    episodes = make_episodes(rules_for(world), world.tasks("test", tasks), 2, seed=1)
    return play_scripted(episodes, write, choose, seed)


@pytest.mark.parametrize("baseline", ["random", "oracle"])
def test_scripted_baselines_play_the_same_episodes_again(baseline: str) -> None:
    played = scripted(Hill(), baseline)
    assert scripted(Hill(), baseline).trajectories == played.trajectories
    assert [(each.group, each.replica) for each in played.trajectories] == [
        (group, replica) for group in range(5) for replica in range(2)
    ]


def test_the_seed_of_a_baseline_is_not_that_of_the_world() -> None:
    assert scripted(Hill(), "random", seed=0).trajectories != scripted(Hill(), "random", seed=1).trajectories
    assert scripted(Hill(), "oracle", seed=0).trajectories == scripted(Hill(), "oracle", seed=1).trajectories
    # A baseline policy makes a new draw in every turn.
    chance = max(scripted(Hill(), "random").trajectories, key=lambda trajectory: len(trajectory.turns))
    assert len({turn.reply for turn in chance.turns}) > 1
    # Replicas of a task differ in the world's noise.
    first, second = scripted(Hill(), "oracle").trajectories[:2]
    assert first.turns != second.turns


def test_scripted_baselines_are_heard_through_the_format_as_a_policy_is() -> None:
    played = scripted(Hill(), lambda index, turn: "oracle" if (index + turn) % 2 else "random")
    for index, trajectory in enumerate(played.trajectories):
        for number, turn in enumerate(trajectory.turns):
            assert turn.thought == ("climb" if (index + number) % 2 else "whatever")
            assert turn.reply.startswith(f"<think> {turn.thought}</think><answer> ")
            assert (turn.invalid, turn.reply_tokens, turn.observation_tokens) == (None, (), ())
        assert trajectory.total("format") == 1.0
        for before, after in pairwise(trajectory.turns):
            assert (
                before.state is not None
                and after.observation.endswith(".")
                and int(before.state) <= int(after.state or 0)
            )


def test_the_oracle_of_a_real_world_beats_its_random_baseline() -> None:
    world = make_world("frozen_lake", {})
    oracle, chance = scripted(world, "oracle", tasks=12), scripted(world, "random", tasks=12)
    assert all(trajectory.success for trajectory in oracle.trajectories)
    assert sum(trajectory.success for trajectory in chance.trajectories) < 12
    assert all(trajectory.total("invalid_turn") == 0 for trajectory in chance.trajectories)


@pytest.mark.parametrize("baseline", ["random", "oracle"])
def test_faults_do_not_change_what_scripted_baselines_do(baseline: str) -> None:
    def disturb(call: Call) -> None:
        faulty(call)
        if call.method == "decide" and call.number == 1 and call.attempt <= 3:
            raise ConnectionError("no idea")

    world = Disturbed(Hill(), disturb)
    episodes = make_episodes(rules_for(world, patience=RetryPolicy(60, 5)), world.tasks("test", 5), 2, seed=1)
    played = play_scripted(episodes, write, lambda index, turn: baseline, 0)
    assert played.trajectories == scripted(Hill(), baseline).trajectories
    assert world.count("make") > 20


def test_a_world_that_is_lost_in_asking_a_baseline_is_counted() -> None:
    def disturb(call: Call) -> None:
        if call.task == "hill/test/2" and call.method == "decide" and (call.number == 1 or call.attempt > 1):
            raise ConnectionError("no idea")

    played = scripted(Disturbed(Hill(), disturb), "oracle")
    assert [(loss.group, loss.replica) for loss in played.lost] == [(2, 0), (2, 1)]
    assert all("ConnectionError: no idea" in loss.reason for loss in played.lost)
    undisturbed = scripted(Hill(), "oracle").trajectories
    assert played.trajectories == [each for each in undisturbed if each.group != 2]


SCRIPT = """
import hashlib, pathlib, sys
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import make_episodes, play_scripted
from turnwise.data.trajectory_files import TRAJECTORIES_FILE, TURNS_FILE, write_trajectories
from turnwise.world import make_world

world = make_world("frozen_lake", {"success_rate": 0.8})
rules = EpisodeConfig(world, ThinkAnswerFormat(), world.limits, RetryPolicy())
episodes = make_episodes(rules, world.tasks("train", 10), 2, seed=4)
baseline = lambda index, turn: ("random", "oracle")[(index + turn) % 2]
played = play_scripted(episodes, rules.format.write, baseline, seed=9)
assert len(played.trajectories) == 20
folder = pathlib.Path(sys.argv[1])
write_trajectories(folder, played.trajectories)
print(*[hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (TRAJECTORIES_FILE, TURNS_FILE)])
print(hash("turnwise"))
"""


def test_what_is_played_and_how_it_is_stored_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    processes = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(folder)],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    printed = [process.communicate(timeout=500)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed[0][1] != printed[1][1]  # the seeds did something
    assert printed[0][0] == printed[1][0]
