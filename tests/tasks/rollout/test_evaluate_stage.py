"""The stage `evaluate`: a policy on a fixed task set, greedily and sampled."""

from __future__ import annotations

from typing import Any

import pytest
from stage_samples import Small

from tasks.rollout.evaluate import EvaluationParameters, evaluate
from turnwise.data.metrics import episode_means
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation
from turnwise.store import Reference, default_store


def evaluated(small: Small, **changes: Any) -> Reference:
    evaluation = small.experiment.evaluation.model_copy(update={"samples": 2, "temperature": 1.0, "seed": 3})
    parameters = EvaluationParameters.of(small.play, small.experiment.compute, evaluation, "validation")
    return evaluate.fn(
        parameters.model_copy(update=changes),
        policy=small.policy,
        tokenizer=small.tokenizer,
        task_set=small.task_sets["validation"],
    )


def test_each_task_is_played_once_greedily_and_sampled_as_often_as_asked_for(small: Small) -> None:
    reference = evaluated(small)
    tasks = list(tasks_of(small.task_sets["validation"], "validation"))
    assert [each.task for each in read_evaluation(reference, GREEDY)] == tasks
    assert [each.task for each in read_evaluation(reference, SAMPLED)] == [task for task in tasks for _ in range(2)]


def test_the_metrics_are_means_of_each_kind_of_episode(small: Small) -> None:
    reference = evaluated(small)
    metrics = default_store().metrics(reference)
    for mode in (GREEDY, SAMPLED):
        for name, value in episode_means(read_evaluation(reference, mode)).items():
            assert metrics[f"{mode}/{name}"] == value
    # pass@2 of two samples is the share of tasks that one of them solved; one greedy episode gives no pass@k.
    sampled = read_evaluation(reference, SAMPLED)
    solved = [any(each.success for each in sampled[place : place + 2]) for place in range(0, len(sampled), 2)]
    assert metrics["sampled/pass@2"] == pytest.approx(sum(solved) / len(solved))
    assert {name for name in metrics if "pass@" in name} == {"sampled/pass@2"}
    assert default_store().clock(reference)["sampled_tokens"] == sum(
        len(turn.reply_tokens)
        for mode in (GREEDY, SAMPLED)
        for each in read_evaluation(reference, mode)
        for turn in each.turns
    )


def test_greedy_episodes_do_not_depend_on_the_seed_in_a_world_without_chance_and_sampled_ones_do(small: Small) -> None:
    one, other = evaluated(small), evaluated(small, seed=4)
    assert evaluated(small) == one != other

    def replies(reference: Reference, mode: str) -> list[tuple[int, ...]]:
        return [turn.reply_tokens for each in read_evaluation(reference, mode) for turn in each.turns]

    assert replies(one, GREEDY) == replies(other, GREEDY)
    assert replies(one, SAMPLED) != replies(other, SAMPLED)


def test_a_horizon_is_a_limit_on_turns_here_too(small: Small) -> None:
    assert default_store().metrics(evaluated(small, horizon=1))["sampled/turns"] == 1.0
