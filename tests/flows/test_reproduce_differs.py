"""What `turnwise reproduce` says of a run that came out as it was, and of one that did not.

That a run comes out the same, through the command, is shown by tests/end_to_end/test_reproduce.py.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flows.commands.reproduction import cli_of, equal
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


def test_the_command_line_is_found_where_the_code_of_the_run_has_it(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "cli.py").touch()
    assert cli_of(tmp_path) == "flows.cli"
    assert cli_of(Path(__file__).parents[2]) == "flows.commands.cli"
