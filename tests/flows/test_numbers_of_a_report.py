"""Numbers of a report that are more than one run's metric: rows and columns of the table, verdicts, curves.

The evaluations are written by hand, so that every number can be counted. That each number of a real report is answered
is shown by tests/end_to_end/test_lineage_of_numbers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from recorded_runs import tiny
from test_lineage_command import made

from tasks.prepare.materials import task_set
from tasks.restoring import opened
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.data.trajectory_files import GREEDY, SAMPLED, write_trajectories
from turnwise.errors import ConfigurationError
from turnwise.records import sources
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RecordedRun, RunArtifacts
from turnwise.tracking.library import PARENT
from turnwise.training_runs.state import TaskSetParameters
from turnwise.world import Task

answer = partial(sources.answer, opened=opened)

TASKS = ("one", "two")
Counts = Sequence[Sequence[int]]
"""Of each task its episodes: at which attempt of two each was solved, 0 if never."""


def episode(task: int, replica: int, solved_at: int) -> Trajectory:
    earlier = () if solved_at == 1 else (Ending.FAILURE,)
    turns = tuple(
        Turn("go", (1,), "<answer>right</answer>", (2,), (-0.5,), None, ("right",), None, True, {}, attempt=attempt)
        for attempt in range(len(earlier) + 1)
    )
    ending = Ending.SUCCESS if solved_at else Ending.FAILURE
    return Trajectory(Task("frozen_lake", TASKS[task], "test", 7, {}), task, replica, turns, ending, "done", earlier)


def evaluation(sampled: Counts, greedy: Counts = (), **metrics: float) -> Reference:
    with default_store().write("evaluation") as draft:
        for mode, counts in ((SAMPLED, sampled), (GREEDY, greedy)):
            if counts:
                (draft.folder / mode).mkdir()
                played = [episode(task, *each) for task, of in enumerate(counts) for each in enumerate(of)]
                write_trajectories(draft.folder / mode, played, [])
        draft.metrics.update(metrics)
    return draft.reference


@pytest.fixture
def runs(turnwise_home: Path) -> list[RecordedRun]:
    """Two variants with two seeds each, a warm start and the baseline policies of the world."""
    experiment = tiny(
        "agent.mode.name=reflect", "agent.mode.attempts=2", "agent.mode.tokens=8", "ablation.variants=[grpo-or]"
    )
    prepared = {"test_task_set": task_set.fn(TaskSetParameters(world=experiment.world, split="test", tasks=8))}
    baselines = {
        "random": evaluation([[0, 0], [0, 0]]),
        "oracle": evaluation([[1, 1], [1, 1]]),
        "warm start": evaluation([[1, 0], [0, 0]], [[1], [0]], **{"sampled/pass@2": 0.5}),
    }
    tested: Mapping[tuple[str, int], tuple[Counts, Counts]] = {
        ("plain", 1): ([[1, 0], [2, 0]], [[1], [2]]),
        ("plain", 2): ([[1, 1], [2, 0]], [[1], [0]]),
        ("turns", 1): ([[1, 1], [2, 1]], [[1], [1]]),
        ("turns", 2): ([[1, 1], [1, 2]], [[0], [0]]),
    }
    found = []
    for (variant, seed), (sampled, greedy) in tested.items():
        start, after = evaluation([[0, 0], [0, seed]]), evaluation([[1, 0], [seed, 0]], [[0], [1]])
        policy = made("policy", entropy=seed / 4, skipped=0.0)
        default_store().record_clock(policy, {"seconds": seed / 2})
        default_store().record_clock(after, {"seconds": seed * 2.0})
        artifacts = RunArtifacts(
            variant=variant,
            seed=seed,
            experiment=experiment.model_dump(mode="json"),
            prepared=prepared,
            start=start,
            iterations=[
                {"rollout": made("rollout", success=0.5), "policy": policy},
                {"rollout": made("rollout", success=0.75), "policy": policy, "evaluation": after},
            ],
            test=evaluation(sampled, greedy, **{"sampled/pass@2": seed / 2}),
        )
        run = RecordedRun(
            f"{variant}{seed}", f"{variant} seed {seed}", "a", True, {PARENT: "p"}, {}, artifacts, baselines
        )
        found.append(run)
    return found


def told(what: str, runs: Sequence[RecordedRun], iteration: int | None = None) -> tuple[float | None, list[str]]:
    """The number, and the runs and rows that it is computed from."""
    found = answer(what, runs, iteration)
    return found.value, [source.row if source.run is None else source.run.name for source in found.sources]


PLAIN, TURNS = ["plain seed 1", "plain seed 2"], ["turns seed 1", "turns seed 2"]


@pytest.mark.parametrize(
    ("what", "value", "rows"),
    [
        ("plain/success", (0.5 + 0.75) / 2, PLAIN),
        ("plain/first attempt", (0.25 + 0.5) / 2, PLAIN),
        ("plain/attempts", ((1.5 + 2) / 2 + (1 + 2) / 2) / 2, PLAIN),
        ("plain/greedy success", (1 + 0.5) / 2, PLAIN),
        ("plain/sampled/pass@2", 0.75, PLAIN),
        ("turns/success", 1.0, TURNS),
        ("warm start/success", 0.25, ["warm start"]),
        ("warm start/greedy success", 0.5, ["warm start"]),
        ("warm start/sampled/pass_at_2", 0.5, ["warm start"]),
        ("oracle/attempts", 1.0, ["oracle"]),
        ("turns - plain", 0.375, [*TURNS, *PLAIN]),
        ("plain − turns", -0.375, [*PLAIN, *TURNS]),
        ("plain - warm start", 0.375, [*PLAIN, "warm start"]),
        ("plain/gain over the warm start", 0.375, [*PLAIN, "warm start"]),
        ("turns - plain/improvement", 1.0, [*TURNS, *PLAIN]),
        ("plain - turns/improvement", 0.0, [*PLAIN, *TURNS]),
        ("turns - plain/effect", 3 * (1 - 3 / 7), [*TURNS, *PLAIN]),
        ("plain - turns/effect", -3 * (1 - 3 / 7), [*PLAIN, *TURNS]),
        ("plain/interquartile mean", 0.625, PLAIN),
        ("plain/iterations to 0.4", 2.0, ["plain seed 1"] * 2 + ["plain seed 2"] * 2),
        ("plain/iterations to 0.9", None, ["plain seed 1"] * 2 + ["plain seed 2"] * 2),
        ("plain/share above 0.5", 0.25, PLAIN),
        ("plain/share above 0.45", 1.0, PLAIN),
        ("plain/update seconds", 1.5, PLAIN),
        ("plain/evaluation seconds", 6.0, PLAIN),
        ("plain/normalised", 0.625, [*PLAIN, "random", "oracle"]),
        (
            "plain/mean over the curve",
            (0.25 + 0.5) / 2,
            ["plain seed 1"] * 2 + ["plain seed 2"] * 2,
        ),
    ],
)
def test_a_number_is_what_can_be_counted_and_names_all_that_it_is_computed_from(
    runs: list[RecordedRun], what: str, value: float | None, rows: list[str]
) -> None:
    assert told(what, runs) == (pytest.approx(value), rows)


def test_a_point_of_a_curve_is_of_the_iteration_that_is_named(runs: list[RecordedRun]) -> None:
    one = runs[1:2]
    assert told("validation/sampled", one, 0) == (0.25, ["plain seed 2"])
    assert told("validation/sampled", one, 2) == told("validation/sampled", one) == (0.5, ["plain seed 2"])
    assert told("validation/greedy", one, 2)[0] == 0.5
    assert told("policy/entropy", one, 1)[0] == told("update/entropy_nats", one, 1)[0] == 0.5
    with pytest.raises(ConfigurationError):
        answer("validation/sampled", one, 1)


def test_what_the_report_does_not_have_is_answered_with_its_rows_and_columns(runs: list[RecordedRun]) -> None:
    for what in ("plain/searches", "nobody/success", "plain - nobody", "plain - turns/q", "random/greedy success"):
        with pytest.raises(
            ConfigurationError, match=r"rows plain, turns, random, oracle, warm start; .* first attempt"
        ):
            answer(what, runs)
