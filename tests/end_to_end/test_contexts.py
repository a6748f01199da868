"""Small policies train under rewritten contexts through the real chain, with all that scores and learns by segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from comparison import tiny_experiment

from flows.prepare import prepare_materials, prepare_policy
from flows.train import train
from turnwise.data.trajectory import TurnKind
from turnwise.data.trajectory_files import read_credit, read_trajectories
from turnwise.store import default_store

pytestmark = [pytest.mark.engine, pytest.mark.chain]

CASES: dict[str, dict[str, Any]] = {
    "a window, with a critic and the reference in the reward": {
        "agent.context": {"policy": "window", "turns": 1},
        "credit.estimator": "gae",
        "optimization.reference": {"coefficient": 0.01, "estimator": "k2", "place": "reward"},
        "optimization.aggregation": "sequence-mean",
    },
    "summaries, with the reference in the loss": {
        "agent.context": {"policy": "summary", "every": 1, "summary_tokens": 24},
        "optimization.reference": {"coefficient": 0.01, "estimator": "k2", "place": "loss"},
        "optimization.mini_batches": 4,
    },
    "summaries that are frozen, and branching": {
        "agent.context": {"policy": "summary", "every": 1, "summary_tokens": 24, "train_summaries": False},
        "rollout.scheme": "branching",
    },
}


@pytest.fixture(scope="module", autouse=True)
def home(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(tmp_path_factory.mktemp("contexts")))
        yield


@pytest.mark.parametrize("case", CASES)
def test_segments_are_trained_on_as_they_were_sampled(case: str) -> None:
    settings = {
        "world.parameters.turns": 3,
        "world.parameters.actions": 6,
        "agent.context_tokens": 400,
        "rollout.prompts": 4,
        "optimization.iterations": 1,
        "variants": {"grpo-or": {}},
        "ablation.variants": ["grpo-or"],
        **CASES[case],
    }
    experiment = tiny_experiment(settings)
    prepared = prepare_policy(experiment, prepare_materials(experiment))
    (iteration,) = train(experiment, prepared, "grpo-or", 1).iterations
    metrics = default_store().metrics(iteration.policy)
    assert metrics["mismatch"] < 1e-5 and metrics["gradient_norm"] > 0
    trajectories = read_trajectories(default_store().folder(iteration.rollout))
    assert max(len(trajectory.segment_turns) for trajectory in trajectories) > 1
    learned_from = [trajectories[index] for index in read_credit(iteration.credit)]
    trained = [turn for trajectory in learned_from for turn in trajectory.turns if turn.trained]
    assert metrics["tokens"] == sum(len(turn.reply_tokens) for turn in trained)
    summaries = [turn for each in trajectories for turn in each.turns if turn.kind is TurnKind.SUMMARY]
    assert bool(summaries) == ("summaries" in case)
    assert any(turn.trained for turn in summaries) == ("summaries, with" in case)
