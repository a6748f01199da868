"""What is shown of an episode: what its policy sees before the first observation, and its return."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from stage_samples import Small, trajectory, turn

from tasks.playing import frame_of
from turnwise.data.trajectory import Ending, Trajectory, TurnKind
from turnwise.data.trajectory_files import read_trajectories
from turnwise.records.episodes import instructions, weighted_return
from turnwise.records.record import episode_columns
from turnwise.reporting.data.episodes import ShownEpisode
from turnwise.results.report_data import Sample
from turnwise.store import default_store
from turnwise.world import Reward


def episode(policy: str, trajectory: Trajectory) -> ShownEpisode:
    return ShownEpisode(policy, "training", 1, "sampled", Sample("", trajectory, None, {}))


def run(name: str, small: Small) -> Any:
    return SimpleNamespace(name=name, artifacts=SimpleNamespace(prepared={"tokenizer": small.tokenizer}))


def instructed(trajectory: Trajectory, small: Small) -> Trajectory:
    """The episode as if its policy had been given an instruction."""
    opening = frame_of(small.tokenizer).opening("Push the boxes.", trajectory.turns[0].observation)
    return replace(trajectory, turns=(replace(trajectory.turns[0], observation_tokens=opening), *trajectory.turns[1:]))


def test_what_a_policy_sees_before_the_first_observation_is_told_once_and_of_policies_alone(small: Small) -> None:
    sampled = read_trajectories(default_store().folder(small.rollout))
    first, second = (instructed(trajectory, small) for trajectory in sampled[:2])
    episodes = [episode("one", first), episode("one", second), episode("two", second), episode("oracle", first)]
    seen = "<|im_start|>system\nPush the boxes.<|im_end|>\n<|im_start|>user\n"
    runs = [run("one", small), run("two", small)]
    assert instructions(runs, episodes) == {seen: "one, two"}
    assert instructions(runs, [episode("one", sampled[0])]) == {}, "there is no instruction"


def test_the_return_of_an_episode_has_the_outcome_of_its_last_attempt() -> None:
    earned = {"solved": 1.0, "tool": 1.0}
    attempts = [turn(earned), replace(turn(earned), attempt=1)]
    played = replace(trajectory(0, 0, attempts), earlier_endings=(Ending.FAILURE,))
    rewards = {"solved": Reward("", "outcome", 2.0), "tool": Reward("", "turn", 0.5)}
    assert weighted_return(Sample("", played, None, rewards)) == 2.0 + 2 * 0.5


def test_the_turns_of_a_recorded_test_episode_are_those_that_act() -> None:
    planned = replace(turn({}), kind=TurnKind.PLAN)
    assert episode_columns({"sampled": [trajectory(0, 0, [planned, turn({})])]}, [])["turns"] == [1]
