"""The stage `demonstrations`: training tasks played by a noisy oracle."""

from __future__ import annotations

import pytest

from tasks.prepare.materials import DemonstrationParameters, demonstrations, task_set
from turnwise.agent.playing import play_with_script
from turnwise.config.agent import Agent, ModeSection
from turnwise.config.schema import RetryOptions, WorldSection
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory import Trajectory, TurnKind
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import TaskSetParameters

pytestmark = pytest.mark.usefixtures("turnwise_home")

AGENT = Agent(format="think-answer", instruction=False, maximum_reply_tokens=32, context_tokens=256)
PATIENCE = RetryOptions(world_seconds=30.0, world_retries=0, maximum_lost_share=0.0, world_delay=0)
BANDIT = WorldSection(name="bandit", preset="ragen", parameters={})
LAKE = WorldSection(name="frozen_lake", parameters={"size": 3, "success_rate": 1.0, "turns": 4, "actions_per_turn": 1})


def train_task_set(world: WorldSection) -> Reference:
    return task_set.fn(TaskSetParameters(world=world, split="train", tasks=3))


def parameters_of(world: WorldSection, count: int, noise: float = 0.0, agent: Agent = AGENT) -> DemonstrationParameters:
    return DemonstrationParameters(world=world, agent=agent, patience=PATIENCE, seed=0, count=count, noise=noise)


def demonstrated(world: WorldSection, count: int, noise: float = 0.0, agent: Agent = AGENT) -> list[Trajectory]:
    made = demonstrations.fn(parameters_of(world, count, noise, agent), task_set=train_task_set(world))
    return read_trajectories(default_store().folder(made))


def test_demonstrations_go_round_the_training_tasks() -> None:
    played = demonstrated(BANDIT, 5)
    names = [task.id for task in tasks_of(train_task_set(BANDIT), "train")]
    assert [each.task.id for each in played] == [*names, *names[:2]]
    assert all(each.success for each in played)


def test_a_world_without_an_oracle_has_no_demonstrations() -> None:
    assert demonstrated(WorldSection(name="gymnasium", preset="blackjack", parameters={}), 5) == []


def test_the_demonstrations_of_a_mixture_are_of_the_worlds_that_it_trains_on() -> None:
    parts = {"lake": {"world": "frozen_lake"}, "bandit": {}}
    world = WorldSection(name="envs.mixture:Mixture", parameters={"parts": parts, "train": ["lake"]})
    assert {each.task.tags["world"] for each in demonstrated(world, 4)} == {"lake"}


def test_the_metrics_are_means_over_the_episodes() -> None:
    made = demonstrations.fn(parameters_of(LAKE, 6), task_set=train_task_set(LAKE))
    played = read_trajectories(default_store().folder(made))
    metrics = default_store().metrics(made)
    assert metrics["success"] == 1.0 and metrics["ending/success"] == 1.0 and metrics["ending/world_lost"] == 0.0
    assert metrics["turns"] == pytest.approx(sum(len(each.turns) for each in played) / 6)
    assert metrics["reward/invalid_turn"] == 0.0, "recorded though nobody earned it"


def test_with_all_noise_the_random_policy_plays_and_with_some_it_takes_some_turns() -> None:
    tasks = [tasks_of(train_task_set(LAKE), "train")[index % 3] for index in range(6)]
    random = play_with_script(parameters_of(LAKE, 6), tasks, 1, lambda episode, turn: "random", 0)
    assert demonstrated(LAKE, 6, noise=1.0) == random.trajectories

    def actions(noise: float) -> list[tuple[str, ...]]:
        return [turn.actions for each in demonstrated(LAKE, 40, noise) for turn in each.turns[:1]]

    # The first turn has the same state whatever the noise; the random policy may also choose as the oracle does.
    changed = sum(one != other for one, other in zip(actions(0.0), actions(0.5), strict=True))
    assert 0 < changed < 40 * 0.5 + 3 * (40 * 0.25) ** 0.5


def test_where_thoughts_are_asked_for_half_of_the_noise_are_errors_that_no_world_accepts() -> None:
    agent = AGENT.model_copy(update={"mode": ModeSection(name="plan", tokens=24)})
    played = demonstrated(LAKE, 30, noise=0.8, agent=agent)
    acting = [turn for each in played for turn in each.turns if turn.kind is TurnKind.ACT]
    errors = sum(turn.rewards.get("invalid_turn", 0.0) > 0 for turn in acting)
    # A share of 0.4 is expected: three standard errors on either side.
    assert abs(errors / len(acting) - 0.4) < 3 * (0.24 / len(acting)) ** 0.5
    assert all(each.turns[0].kind is TurnKind.PLAN for each in played)
    assert (
        sum(turn.rewards.get("invalid_turn", 0.0) for each in demonstrated(LAKE, 30, 0.8) for turn in each.turns) == 0
    )
