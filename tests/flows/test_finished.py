"""What a finished ablation left is found as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flows.recording.finished import AblationOutcome, finished_ablation, keep_finished
from tasks.observing import StageCall
from turnwise.data.outcomes import EarlyEnd
from turnwise.experiment import Experiment, load
from turnwise.project import home
from turnwise.runs.state import Iteration, Models, Prepared, Run
from turnwise.store import Reference, default_store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("turnwise_home")


def experiment(**settings: object) -> Experiment:
    every = {"ablation.name": "kept", "ablation.seeds": [1], "ablation.variants": ["mt-grpo"], **settings}
    return load(ROOT / "tests" / "parameters.yaml", settings=every)


def artifact(number: float, key: str) -> Reference:
    with default_store().write("number") as draft:
        draft.metrics["value"] = number
    default_store().record_lineage(draft.reference, key, {})
    return draft.reference


def kept(mine: Experiment, ended: EarlyEnd | None = None) -> tuple[AblationOutcome, Reference]:
    """An outcome whose references are all to one artifact, and that artifact."""
    made = artifact(1.0, "a" * 32)
    prepared = Prepared(made, made, made, made, made, made)
    run = Run("mt-grpo", 1, mine.variant("mt-grpo"), prepared, Models(made, None), made)
    run.iterations = [Iteration(1, Models(made, None), 3, {"rollout": made, "health": made}, earlier=None)]
    run.start_warning, run.ended, run.test = "nothing to begin with", ended, made
    outcome = AblationOutcome(prepared, {"random": made}, made, [run], [], made)
    keep_finished(mine, outcome, "code", [StageCall("number", "one", made, False, 1.0, f"number/{'a' * 32}")])
    return outcome, made


def test_what_was_kept_comes_back_as_it_was() -> None:
    mine = experiment()
    assert finished_ablation(mine) is None
    end = EarlyEnd(iteration=1, planned=5, cause="guard", by=("zero_variance_groups",), message="alike")
    outcome, _ = kept(mine, end)
    finished = finished_ablation(mine)
    assert finished is not None and [call.label for call in finished.calls] == ["one"]
    assert finished.outcome(mine) == outcome


@pytest.mark.parametrize(
    "settings",
    [{"optimization.learning_rate": 0.5}, {"ablation.seeds": [2]}, {"world.parameters": {"hops": [1]}}],
    ids=["a rate", "another seed", "another world"],
)
def test_other_parameters_have_not_been_finished(settings: Mapping[str, Any]) -> None:
    kept(experiment())
    assert finished_ablation(experiment(**settings)) is None


def test_where_it_is_recorded_is_no_part_of_what_it_depends_on() -> None:
    kept(experiment())
    assert finished_ablation(experiment(**{"tracking.traces": 7})) is not None


def test_an_artifact_that_is_damaged_or_of_another_key_counts_as_not_recorded() -> None:
    mine = experiment()
    outcome, made = kept(mine)
    keep_finished(mine, outcome, "code", [StageCall("number", "one", made, False, 1.0, f"number/{'b' * 32}")])
    assert finished_ablation(mine) is None
    kept(mine)
    assert finished_ablation(mine) is not None
    (default_store().folder(made) / "manifest.json").write_text("{}")
    assert finished_ablation(mine) is None


def test_a_file_that_was_cut_off_counts_as_none(caplog: pytest.LogCaptureFixture) -> None:
    kept(experiment())
    (path,) = (home() / "finished").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert finished_ablation(experiment()) is None
    assert "cannot be read" in caplog.text
