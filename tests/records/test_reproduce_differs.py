"""What `turnwise reproduce` says of runs that came out as they were, within the margin, or not.

That a run comes out the same, through the command, is shown by tests/end_to_end/test_reproduce.py.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from stage_samples import trajectory, turn

from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import write_trajectories
from turnwise.records.reproduction import answer, equal, margin_of
from turnwise.store import Reference, Store, default_store
from turnwise.tracking.finding import RecordedRun, RunArtifacts


def a_run(
    store: Store, *, content: str = "", code: str = "c0de", platform: Any = None, **parameters: Any
) -> RecordedRun:
    """A run of one iteration, whose rollout holds `content` and was made with this code and these parameters."""

    def made(kind: str, text: str, **of_stage: Any) -> Reference:
        with store.write(kind) as draft:
            (draft.folder / "content.txt").write_text(text)
        record = {"stage": kind, "code": code, "parameters": of_stage, "inputs": {}, "platform": platform or {}}
        store.record_lineage(draft.reference, "key", record)
        return draft.reference

    artifacts = RunArtifacts(
        variant="base",
        seed=1,
        experiment={},
        prepared={"train_task_set": made("task_set", "the tasks")},
        start=made("evaluation", "before"),
        iterations=[{"rollout": made("rollout", f"played {content}", **parameters), "policy": made("policy", content)}],
        test=made("evaluation", f"after {content}"),
    )
    return RecordedRun("id", "base seed 1", "ablation", True, {}, {}, artifacts, {})


@pytest.fixture
def elsewhere(turnwise_home: Path, tmp_path: Path) -> Store:
    """The store of the run that is made again."""
    return Store(tmp_path / "elsewhere")


def told(run: RecordedRun, again: RecordedRun, elsewhere: Store) -> tuple[bool, str]:
    output = io.StringIO()
    found = equal(run, again, elsewhere, Console(file=output, width=1000, highlight=False))
    return found, output.getvalue()


def test_a_run_that_came_out_the_same_is_equal(elsewhere: Store) -> None:
    assert told(a_run(default_store()), a_run(elsewhere), elsewhere) == (
        True,
        "base seed 1: equal, all 5 artifacts to the bit, from the task sets to the test\n",
    )


def test_the_first_artifact_that_differs_is_named_with_what_it_was_made_from(elsewhere: Store) -> None:
    run, again = a_run(default_store(), seed=1), a_run(elsewhere, content="worse", code="edited", seed=2)
    rollouts = [each.artifacts.iterations[0]["rollout"] for each in (run, again)]
    assert told(run, again, elsewhere) == (
        False,
        "base seed 1: the first 2 artifacts are equal; the first that differs is iteration 1: rollout: recorded as "
        f"{rollouts[0]}, now {rollouts[1]}\n    made from other code, parameters.seed\n",
    )


def test_what_is_made_from_the_same_and_differs_is_called_so(elsewhere: Store) -> None:
    found, words = told(a_run(default_store()), a_run(elsewhere, content="by chance"), elsewhere)
    assert not found and words.endswith("    nothing explains it: parameters, code and platform are the same\n")


def test_another_processor_explains_why_a_run_differs(elsewhere: Store) -> None:
    platforms = [{"processor": {"vendor": "v", "flags": flags}} for flags in (["avx2", "avx512f"], ["avx2"])]
    run = a_run(default_store(), platform=platforms[0])
    again = a_run(elsewhere, content="others", platform=platforms[1])
    found, words = told(run, again, elsewhere)
    assert not found and words.endswith(
        "    made on a processor with avx512f; this one has none: figures may differ in the second decimal\n"
    )


def test_a_run_that_ended_earlier_differs_where_the_other_goes_on(elsewhere: Store) -> None:
    run, again = a_run(default_store()), a_run(elsewhere)
    artifacts = again.artifacts.model_copy(update={"test": None})
    shorter = RecordedRun("id", again.name, "ablation", True, {}, {}, artifacts, {})
    found, words = told(run, shorter, elsewhere)
    assert not found and "the first that differs is test: evaluation" in words and words.endswith("now None\n")


def solving(store: Store, seed: int, solved: int) -> RecordedRun:
    """A run on a frozen lake that solved so many of ten test tasks."""
    with store.write("evaluation") as draft:
        (draft.folder / "sampled").mkdir()
        played = [
            trajectory(place, 0, [turn()], Ending.SUCCESS if place < solved else Ending.FAILURE) for place in range(10)
        ]
        write_trajectories(draft.folder / "sampled", played)
    artifacts = RunArtifacts(
        variant="base",
        seed=seed,
        experiment={"world": {"name": "frozen_lake", "parameters": {"size": 3}}},
        prepared={},
        start=draft.reference,
        iterations=[],
        test=draft.reference,
    )
    return RecordedRun("id", f"base seed {seed}", "ablation", True, {}, {}, artifacts, {})


def answered(
    elsewhere: Store, recorded: dict[int, int], again: dict[int, int], margin: float = 0.05
) -> tuple[bool, str]:
    before = {seed: solving(default_store(), seed, solved) for seed, solved in recorded.items()}
    now = {seed: (solving(elsewhere, seed, solved), recorded[seed] == solved) for seed, solved in again.items()}
    return answer("base", now, before, elsewhere, margin)


def test_one_of_four_is_answered(elsewhere: Store) -> None:
    recorded = {1: 5, 2: 6, 3: 5, 4: 6}
    assert answered(elsewhere, recorded, recorded) == (True, "base: the same bits")
    # One run of four solves a task more: 0.025, deviation 0.05, error 0.025, t(0.95, 3) = 2.3534 of it 0.0588.
    near = answered(elsewhere, recorded, {1: 6, 2: 6, 3: 5, 4: 6}, 0.1)
    said = "success +0.025 (90 % interval \u22120.034 to +0.084) over 4 seeds; the margin is"
    assert near == (True, f"base: within the margin: {said} 0.1")
    held, words = answered(elsewhere, recorded, {1: 6, 2: 6, 3: 5, 4: 6}, 0.05)
    assert not held and words.startswith(f"base: undecided: {said} 0.05; repeating ")
    held, words = answered(elsewhere, recorded, {1: 1, 2: 2, 3: 1, 4: 1})
    assert not held and words.startswith("base: differs: success \u22120.425 (90 % interval ")


@pytest.mark.parametrize("recorded", [{1: 5}, {1: 5, 2: 5, 3: 5}])
def test_recorded_seeds_that_do_not_vary_leave_it_undecided_and_it_is_said_what_would_decide_it(
    elsewhere: Store, recorded: dict[int, int]
) -> None:
    held, words = answered(elsewhere, recorded, {1: 6})
    assert not held and words == (
        "base: undecided: success +0.100 over 1 seed; the margin is 0.05; nothing shows how runs vary: record further "
        "seeds, and reproduce the ablation"
    )


def test_a_run_that_is_tested_no_more_differs(elsewhere: Store) -> None:
    run = solving(default_store(), 1, 5)
    untested = replace(run, artifacts=run.artifacts.model_copy(update={"test": None}))
    held, words = answer("base", {1: (untested, False)}, {1: run}, elsewhere, 0.05)
    assert (held, words) == (False, "base: differs: seed 1 was tested then, and now is not")


def test_the_margin_is_as_it_is_given_or_what_is_worth_having_between_shares(turnwise_home: Path) -> None:
    run = solving(default_store(), 1, 5)
    assert (margin_of([run], None), margin_of([run], 0.2)) == (0.05, 0.2)
