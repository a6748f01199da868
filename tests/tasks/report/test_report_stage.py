"""The stage `report`: the report data of an ablation, worked by hand from small evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from stage_samples import Small, rewarded, trajectory, turn

from tasks.credit.credit import CreditParameters, credit
from tasks.report.report import report
from turnwise.config.schema import Credit, RewardSection, WorldSection
from turnwise.data.outcomes import EarlyEnd, LeftOut
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.data.trajectory_files import read_evaluation, write_trajectories
from turnwise.records.results import read_report
from turnwise.results import cells
from turnwise.results.report import ReportedRun, ReportParameters
from turnwise.results.report_data import Measure, ReportData
from turnwise.store import Reference, default_store

RUNS = tuple(ReportedRun(variant="grpo", seed=seed) for seed in (1, 2))
ENDED = EarlyEnd(iteration=1, planned=9, cause="guard", by=("no_signal",), message="what was seen")
REWARDS = {"goal": RewardSection(level="outcome", weight=1.0)}
Outcomes = Mapping[str, Sequence[bool]]
"""By task, whether each of its episodes succeeds."""


def evaluation(sampled: Outcomes, greedy: Outcomes | None = None) -> Reference:
    """An evaluation with these outcomes, each of one turn of three tokens."""
    with default_store().write("evaluation") as draft:
        for mode, outcomes in (("sampled", sampled), ("greedy", greedy or {})):
            (draft.folder / mode).mkdir()
            episodes = [
                trajectory(group, replica, [turn()], Ending.SUCCESS if solved else Ending.FAILURE, task)
                for group, (task, of_task) in enumerate(outcomes.items())
                for replica, solved in enumerate(of_task)
            ]
            write_trajectories(draft.folder / mode, episodes)
    return draft.reference


def reported(
    small: Small,
    runs: Sequence[ReportedRun] = RUNS,
    left_out: Sequence[LeftOut] = (),
    rewards: Mapping[str, Mapping[str, RewardSection]] | None = None,
    **changes: Any,
) -> ReportData:
    """The report on one variant with two seeds, or on two variants, of one iteration each."""
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica == 0))
    credited = credit.fn(
        CreditParameters(rewards=REWARDS, credit=Credit(estimator="rloo", options={}), reference=None), rollout=rollout
    )
    tests = [
        evaluation({"a": [True, False], "b": [True, True]}, {"a": [True], "b": [True]}),
        evaluation({"a": [False, False], "b": [True, False]}, {"a": [False], "b": [True]}),
    ]
    start = evaluation({"v": [False, False]}, {"v": [False]})
    after = evaluation({"v": [True, False]}, {"v": [True]})
    made = {"rollout": rollout, "credit": credited, "policy": small.policy, "evaluation": after}
    inputs: dict[str, Any] = {
        "baselines": {
            "random": evaluation({"a": [False, False], "b": [False, True]}),
            "oracle": evaluation({"a": [True, True], "b": [True, True]}),
        },
        "warm_start": evaluation({"a": [False, True], "b": [False, False]}),
        "starts": [start, start],
        "iterations": [[made | {"health": healthy()}] for _ in tests],
        "tests": tests,
        "tokenizer": small.tokenizer,
        **changes,
    }
    parameters = ReportParameters(
        title="Small",
        world=WorldSection(name="frozen_lake", parameters={"size": 3}),
        rewards=rewards or {run.variant: REWARDS for run in runs},
        runs=list(runs),
        left_out=list(left_out),
        seed=0,
        success_threshold=0.5,
        plotted=[Measure(topic="Updates", artifact="policy", metric="parameters", heading="weights")],
        attempts=1,
    )
    return read_report(report.fn(parameters, **inputs))


def healthy() -> Reference:
    """A health record without alarms."""
    alarm = (
        '{"iteration": 1, "counts": {}, "healthy": 1, "returns": 0, "on": [], "raised": {"entropy": "too high"}, '
        '"response": "log", "change": null}'
    )
    with default_store().write("health") as draft:
        content = f'{{"monitors": [], "in_a_row": {{}}, "alarm": {alarm}, "horizon": {{"limit": 2, "batches": []}}}}'
        (draft.folder / "health.json").write_text(content)
    return draft.reference


def test_every_cell_is_the_mean_over_tasks_of_the_mean_over_a_tasks_episodes(small: Small) -> None:
    data = reported(small)
    found = {row.name: row.cells["success"] for row in data.rows}
    values = {name: None if each is None else each.value for name, each in found.items()}
    # grpo: (1/2 + 1) / 2 and (0 + 1/2) / 2, over seeds. Warm start: (1/2 + 0) / 2. Random: (0 + 1/2) / 2.
    assert values == {"grpo": 0.5, "warm start": 0.25, "random": 0.25, "oracle": 1.0}
    assert found["grpo"] is not None and found["grpo"].sample == (0.75, 0.25)
    greedy = {row.name: row.cells["greedy success"] for row in data.rows}
    assert greedy["grpo"] is not None and greedy["grpo"].sample == (1.0, 0.5)
    assert greedy["random"] is None, "a baseline policy plays no greedy episodes"
    assert [row.kind for row in data.rows] == ["variant", "warm start", "baseline", "baseline"]


def test_the_learning_curve_begins_before_training(small: Small) -> None:
    curves = {(curve.metric, curve.seed): curve.points for curve in reported(small).curves}
    assert curves["validation/sampled", 1] == [(0, 0.0), (1, 0.5)]
    assert curves["validation/greedy", 2] == [(0, 0.0), (1, 1.0)]
    weights = default_store().metrics(small.policy)["parameters"]
    assert curves["policy/parameters", 1] == [(1, weights)]


def test_the_best_and_the_worst_of_a_group_are_shown_with_their_advantages(small: Small) -> None:
    best, worst = reported(small).samples
    assert best.label == "grpo, seed 1, batch 1: best of its group"
    # By rloo, 1 against two others with 0, and 0 against 1 and 0.
    assert set(best.advantages or []) == {1.0} and set(worst.advantages or []) == {-0.5}
    assert best.spelling is not None
    assert [len(row) for row in best.spelling] == [len(turn.reply_tokens) for turn in best.trajectory.turns]


def test_a_sample_is_shown_with_the_rewards_of_its_own_variant(small: Small) -> None:
    weights = {"plain": 1.0, "doubled": 2.0}
    runs = [ReportedRun(variant=variant, seed=1) for variant in weights]
    rewards = {name: {"goal": RewardSection(level="outcome", weight=weight)} for name, weight in weights.items()}
    shown = {
        each.label.partition(",")[0]: each.rewards["goal"].weight
        for each in reported(small, runs, rewards=rewards).samples
    }
    assert shown == weights


def test_alarms_and_the_work_are_counted_over_the_runs(small: Small) -> None:
    data = reported(small)
    assert data.alarms is not None
    assert [(alarm.variant, alarm.seed, alarm.response) for alarm in data.alarms] == [
        ("grpo", 1, "log"),
        ("grpo", 2, "log"),
    ]
    (work,) = data.work
    # Per run two groups of three episodes; evaluations of 3, 3 and 6 episodes with three tokens each.
    assert (work.runs, work.episodes) == (2, 12)
    assert work.evaluation_tokens == 2 * (3 + 3 + 6) * 3


def test_the_verdict_is_on_the_primary_metric_between_random_and_oracle(small: Small) -> None:
    judgement = reported(small).judgement
    assert judgement is not None and judgement.measure == "success"
    (standing,) = judgement.standings
    # (0.5 - 0.25) / (1 - 0.25)
    assert standing.normalised is not None and standing.normalised.value == pytest.approx(1 / 3)
    assert standing.gain is not None and standing.gain.difference.value == pytest.approx(0.25)


def test_greedy_episodes_have_verdicts_of_their_own(small: Small) -> None:
    start = evaluation({"a": [False], "b": [False]}, {"a": [False], "b": [True]})
    greedy = reported(small, warm_start=start).greedy
    assert greedy is not None and greedy.measure == "greedy success" and greedy.learning == []
    (standing,) = greedy.standings
    # The runs solve both tasks and one of two, the warm start one of two.
    assert standing.gain is not None and standing.gain.difference.value == pytest.approx(0.25)
    assert reported(small).greedy is None  # the warm start has no greedy episodes


def test_a_run_that_was_ended_counts_and_those_that_went_on_stand_beneath(small: Small) -> None:
    whole, data = reported(small), reported(small, runs=(RUNS[0], RUNS[1].changed(ended=ENDED)))
    rows = {row.name: (row.kind, row.cells["success"]) for row in data.rows}
    assert list(rows)[:2] == ["grpo", "grpo, runs that went on"]
    assert rows["grpo"] == ("variant", whole.rows[0].cells["success"])
    kind, alone = rows["grpo, runs that went on"]
    # 0.5 over both runs; 0.75 over the one that went on, which no verdict rests on
    assert kind == "went on" and alone is not None and alone.sample == (0.75,)
    assert data.judgement is not None and whole.judgement is not None
    assert data.judgement.standings == whole.judgement.standings
    assert data.outcomes is not None and data.outcomes.runs == {"grpo": 2}
    (ended,) = data.outcomes.ended
    assert (ended.name, ended.when, ended.by) == ("grpo seed 2", "iteration 1 of 9", "no_signal")
    # Of the 12 episodes of both runs; evaluations of 3, 3 and 6 episodes with three tokens each.
    assert ended.work is not None and (ended.work.episodes, ended.work.evaluation_tokens) == (6, 36)


def test_the_area_of_an_ended_run_is_over_the_training_that_was_planned(small: Small) -> None:
    data = reported(small, runs=(RUNS[0], RUNS[1].changed(ended=ENDED)))
    assert data.judgement is not None
    (learning,) = data.judgement.learning
    # From 0 to 0.5 in one iteration: 0.25. The ended run keeps 0.5 for 8 more: (0.25 + 4) / 9. Both reach 0.5 after 1.
    assert learning.area is not None and learning.area.sample == pytest.approx((0.25, 4.25 / 9))
    assert learning.reached.at == (1, 1)


def test_where_every_run_was_ended_none_stand_beneath(small: Small) -> None:
    data = reported(small, runs=[run.changed(ended=ENDED) for run in RUNS])
    assert [row.kind for row in data.rows] == ["variant", "warm start", "baseline", "baseline"]
    assert data.outcomes is not None and data.outcomes.mark("grpo") == "2 of 2 ended"


def test_a_variant_whose_runs_a_fault_has_left_out_has_an_empty_row(small: Small) -> None:
    faults = [LeftOut(variant="ppo", seed=seed, by="mismatch", message="another engine") for seed in (1, 2)]
    data = reported(small, left_out=faults)
    empty = next(row for row in data.rows if row.name == "ppo")
    assert empty.kind == "variant" and set(empty.cells.values()) == {None}
    assert data.outcomes is not None and data.outcomes.runs == {"grpo": 2, "ppo": 2}
    assert data.judgement is not None and [each.name for each in data.judgement.standings] == ["grpo"]
    assert ReportData.from_json(data.to_json()) == data


def test_where_a_run_has_no_value_on_the_test_tasks_there_is_no_verdict(small: Small) -> None:
    nothing = evaluation({})
    data = reported(small, tests=[nothing, nothing])
    assert data.judgement is None
    assert data.rows[0].cells["success"] is None


def test_the_same_artifacts_give_the_same_report(small: Small) -> None:
    assert reported(small).to_json() == reported(small).to_json()


def test_the_episodes_of_an_evaluation_are_read_once_for_all_columns(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells._task_means.cache_clear()
    read: list[tuple[Reference, str]] = []

    def noted(reference: Reference, mode: str) -> list[Trajectory]:
        read.append((reference, mode))
        return read_evaluation(reference, mode)

    monkeypatch.setattr(cells, "read_evaluation", noted)
    reported(small)
    assert len(read) == len(set(read)) > 0
