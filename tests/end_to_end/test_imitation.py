"""Imitation through the real chain: a file of conversations in place of demonstrations, and AgentEvol next to GRPO."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparison import compared, tiny_experiment

from flows.prepare import prepare_materials, prepare_policy
from flows.train import train
from tasks.prepare.imitation import sequences_to_imitate
from turnwise.data.trajectory_files import read_credit, read_trajectories
from turnwise.experiment import Experiment
from turnwise.store import default_store
from turnwise.training_runs.state import Prepared, Run

pytestmark = [pytest.mark.engine, pytest.mark.chain]

SOME_SUCCESS = ["warm_start.maximum_steps=150", "rollout.group_size=8"]
"""A policy that solves some of what it samples."""
BESIDE = [
    "variants={grpo: {}, evolution: {optimization: {method: evolution}, evolution: {steps: 2, batch: 8}}}",
    "ablation.variants=[grpo, evolution]",
]


def tiny(*settings: str) -> Experiment:
    return tiny_experiment([*SOME_SUCCESS, *settings])


def prepared(experiment: Experiment) -> Prepared:
    return prepare_policy(experiment, prepare_materials(experiment))


@pytest.fixture(scope="module", autouse=True)
def home(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home for all: what is prepared is computed once."""
    folder = tmp_path_factory.mktemp("imitation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder))
        yield folder


def test_conversations_that_say_what_demonstrations_say_give_the_same_policy_to_the_bit(tmp_path: Path) -> None:
    few_steps = "warm_start.maximum_steps=30"
    shown = prepared(tiny(few_steps))
    rows = [
        [
            message
            for turn in trajectory.turns
            for message in ({"role": "user", "content": turn.observation}, {"role": "assistant", "content": turn.reply})
        ]
        for trajectory in read_trajectories(default_store().folder(shown.demonstrations))
    ]
    path = tmp_path / "conversations.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in rows))
    told = prepared(tiny(few_steps, f"data.conversations={path}"))
    assert told.demonstrations.kind == "conversations"
    assert (told.tokenizer, told.warm_start) == (shown.tokenizer, shown.warm_start)
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in rows[1:]))
    assert prepare_materials(tiny(f"data.conversations={path}")).demonstrations != told.demonstrations


def test_conversations_that_do_not_fit_into_the_context_are_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [{"role": "user", "content": "P _ O G"}, {"role": "assistant", "content": "Left"}]
    path = tmp_path / "conversations.jsonl"
    path.write_text("".join(json.dumps({"messages": messages * times}) + "\n" for times in (1, 60)))
    experiment = tiny(f"data.conversations={path}")
    materials = prepare_materials(experiment)
    from turnwise.training_runs.state import play_parameters

    sequences = sequences_to_imitate(play_parameters(experiment), materials.tokenizer, materials.demonstrations)
    assert len(sequences) == 1
    assert "1 of 2 conversations are longer than agent.context_tokens: 160, and are left out" in caplog.text


def evolved(*settings: str) -> tuple[Prepared, Run]:
    experiment = tiny(*BESIDE, *settings)
    made = prepared(experiment)
    return made, train(experiment.variant("evolution"), made, "evolution", 1)


def test_evolution_imitates_one_success_of_each_task() -> None:
    made, run = evolved()
    for iteration in run.iterations:
        trajectories = read_trajectories(default_store().folder(iteration.rollout))
        credited = {index for index, each in read_credit(iteration.credit).items() if any(each.turns)}
        assert credited and all(trajectories[index].success for index in credited)
        tasks = [trajectories[index].task.id for index in credited]
        assert sorted(tasks) == sorted({each.task.id for each in trajectories if each.success})
        metrics = default_store().metrics(iteration.policy)
        assert (metrics["optimizer_steps"], metrics["skipped"]) == (2.0, 0.0)
    assert len({made.warm_start, *(iteration.policy for iteration in run.iterations)}) == 3


def test_without_a_success_the_policy_stays() -> None:
    made, run = evolved("variants.evolution.evolution.threshold=2.0", "optimization.iterations=1")
    (iteration,) = run.iterations
    weights = [default_store().folder(policy) / "model.safetensors" for policy in (made.warm_start, iteration.policy)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert default_store().metrics(iteration.policy)["skipped"] == 1.0


def test_each_fine_tuning_can_begin_afresh() -> None:
    _, onward = evolved()
    _, afresh = evolved("variants.evolution.evolution.start=warm_start")
    assert afresh.iterations[0].policy == onward.iterations[0].policy
    assert afresh.iterations[1].policy != onward.iterations[1].policy


def test_evolution_is_a_row_beside_reinforcement_and_a_repeat_computes_nothing(home: Path) -> None:
    first, again = (compared(tiny(*BESIDE), home / "results") for _ in range(2))
    assert {"grpo", "evolution"} <= {row.name for row in first.report.rows}
    assert again.digest == first.digest and again.computed == 0
