"""The stages of dvc.yaml: each runs the flows' functions, then copies the results for DVC out of the store.

    prepare       data/task_sets, data/demonstrations, data/tokenizer, data/baselines.json
    warm_start    models/warm_start (Hugging Face's layout), models/warm_start.json and .csv
    train         runs/<variant>/<seed>: policy (likewise), metrics.json, validation.csv, training.csv, digests.json
    report        results/<name>: table.csv, curves.csv, digests.json, and for people report.html, report.json, figures

DVC deletes the outputs of a stage before it runs it. This is harmless: nothing is computed from them, and they are
copied at the end. Files that DVC tracks contain no times, so they are the same wherever they are computed; the report
page, which does, is not tracked. When DVC runs a stage again, only what is not in the store is recomputed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import flow, runtime
from rich.console import Console

from flows.ablation import comparison
from flows.plan import Plan, plan_preparation, plan_run
from flows.prepare import evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.report import open_record
from flows.runtime.disk import disk_guard
from flows.runtime.flow_runs import run_flow
from flows.workers.runs import RunOrder, run_recorded
from tasks.prepare.warm_start import CURVE_FILE
from tasks.restoring import MODELS
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, single
from turnwise.policy.model_files import model_files
from turnwise.project import project_root
from turnwise.records.record import recording_store
from turnwise.records.results import DIGESTS_FILE
from turnwise.reporting.data.tables import as_csv
from turnwise.store import MANIFEST, Reference, default_store, run_environment
from turnwise.store.atomic_write import write_whole
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.memory import require_memory
from turnwise.training_runs.observing import observing
from turnwise.training_runs.state import Prepared, Run
from turnwise.world import SPLITS


def materialise(stage: str, experiment: Experiment, variant: str | None = None, seed: int | None = None) -> None:
    """Run one stage of dvc.yaml: `prepare`, `warm_start`, `train` (of one variant and seed) or `report`.

    Raises ConfigurationError where variant and seed are missing, superfluous, or not part of the ablation.
    """
    if (variant is not None, seed is not None) != (stage == "train", stage == "train"):
        raise ConfigurationError(
            f"the stage train takes --variant and --seed, the others neither; this is {stage}", "TW-missing-option"
        )
    if variant is not None and seed is not None:
        _require_part(experiment, variant, seed)
    run_flow(dvc_stage, stage, experiment, variant, seed)


def _stage_run_name() -> str:
    """The name of a stage's flow run, e.g. `train mt-grpo seed 1`."""
    parameters = runtime.flow_run.parameters
    stage, variant = parameters["stage"], parameters["variant"]
    return stage if variant is None else f"{stage} {variant} seed {parameters['seed']}"


@flow(name="DVC stage", flow_run_name=_stage_run_name, validate_parameters=False, persist_result=False)
def dvc_stage(stage: str, experiment: Experiment, variant: str | None, seed: int | None) -> None:
    """`materialise` as a flow run of its own."""
    if variant is not None and seed is not None:
        materialise_run(experiment, variant, seed)
    else:
        ONCE[stage](experiment)


def materialise_materials(experiment: Experiment) -> None:
    """Write the task sets, the demonstrations, the tokenizer and the baselines' scores on the test task set."""
    with _showing(plan_preparation(experiment, evaluated="test")):
        materials = prepare_materials(experiment)
        baselines = evaluate_baselines(experiment, materials)
    data = project_root() / "data"
    with _replacement(data / "task_sets") as task_sets:
        for split in SPLITS:
            _copy(_files_of(materials.task_set(split)), task_sets / split)
    for name in ("demonstrations", "tokenizer"):
        _write_folder(data / name, _files_of(getattr(materials, name)))
    scores = {name: _by_mode(default_store().metrics(baseline))["sampled"] for name, baseline in baselines.items()}
    _write_json(data / "baselines.json", scores)


def materialise_warm_start(experiment: Experiment) -> None:
    """Write the policy that reinforcement starts from, its learning curve, and its scores on the test task set."""
    with _showing(plan_preparation(experiment, evaluated="test")):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        test = evaluate_warm_start(experiment, prepared)
    models = project_root() / "models"
    path = default_store().folder(prepared.warm_start) / CURVE_FILE  # none of a policy that is used as it was loaded
    curve = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    columns = ("step", "loss", "validation")
    _write_policy(models / "warm_start", prepared.warm_start, prepared)
    write_whole(models / "warm_start.csv", as_csv(columns, ([check[name] for name in columns] for check in curve)))
    _write_json(
        models / "warm_start.json",
        {"learning": curve[-1] if curve else {}, "test": _by_mode(default_store().metrics(test))},
    )


def materialise_run(experiment: Experiment, variant: str, seed: int) -> None:
    """Run one variant with one seed; write its final policy, its scores, its curves and its artifacts' digests.

    If a guard or an alarm ends the run, that is what it comes to: its policy then is written, and its scores say when.

    Raises:
        ConfigurationError: the device has too little memory for this run, raised before anything is computed, or the
            disk too little room, raised before anything long is.
        TrainingEnded: a fault has ended the run.
    """
    recording_store(experiment)
    own = single(experiment, variant, seed)
    require_memory(own)
    with _showing(plan_run(experiment, variant, seed)), observing(disk_guard(own)):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        record = open_record(experiment, prepared)
        with record.open_runs():
            run = run_recorded(RunOrder(experiment, prepared, variant, seed), record)
    folder = project_root() / "runs" / variant / str(seed)
    _write_policy(folder / "policy", run.policy, prepared)
    assert run.test is not None, "the run has not been tested"
    early_end = {} if run.ended is None else {"ended": {"iteration": run.ended.iteration, "by": run.ended.reason}}
    _write_json(folder / "metrics.json", {"test": _by_mode(default_store().metrics(run.test)), **early_end})
    _write_validation(folder / "validation.csv", run)
    _write_training(folder / "training.csv", run)
    _write_json(folder / DIGESTS_FILE, _digests(run, prepared))


def materialise_report(experiment: Experiment) -> None:
    """Compare all runs, which earlier stages have computed, and write the report; finishes the ablation's record.

    Raises:
        TrainingEnded: a fault has left out runs; the report of the others is written.
    """
    result = run_flow(comparison, experiment)
    if result.repeat:
        Console().print(result.repeat, highlight=False, soft_wrap=True)
    result.require_whole()


ONCE: Mapping[str, Callable[[Experiment], None]] = {
    "prepare": materialise_materials,
    "warm_start": materialise_warm_start,
    "report": materialise_report,
}
"""The stages that run once per ablation, by their names in dvc.yaml."""


def _require_part(experiment: Experiment, variant: str, seed: int) -> None:
    ablation = experiment.ablation
    if ablation.until is not None:
        raise ConfigurationError(
            "ablation.seeds must be a list where DVC makes the runs, whose stages are known beforehand; found until: "
            "decided: list them, or run turnwise ablation",
            "TW-unlisted-seeds",
        )
    if variant not in ablation.variants or seed not in ablation.all_seeds:
        raise ConfigurationError(
            f"a run must be part of the ablation, whose variants are {ablation.variants} and whose seeds are "
            f"{ablation.seeds}; found {variant!r} with seed {seed}",
            "TW-unknown-run",
        )


@contextmanager
def _showing(planned: Plan) -> Iterator[None]:
    console = Console()
    display = planned.display(console)
    with display.showing():
        yield
    console.print(f"{display.computed} stages computed, {display.found} found in the store", highlight=False)


def _digests(run: Run, prepared: Prepared) -> dict[str, Any]:
    """The digests of everything that the run was made from and has made, in order, to find where two runs first differ.

    The platform is included, since it may explain a difference.
    """
    return {
        **{name: reference.digest for name, reference in vars(prepared).items()},
        "start": run.start.digest,
        "iterations": [
            {name: reference.digest for name, reference in iteration.artifacts.items()} for iteration in run.iterations
        ],
        "test": run.test.digest if run.test else None,
        "platform": run_environment.platform(),
    }


def _write_validation(path: Path, run: Run) -> None:
    """Write the success on the validation task set: before the first iteration, and at every evaluation."""
    rows = [[0, *_success(run.start)]]
    rows += [
        [iteration.number, *_success(iteration.evaluation)] for iteration in run.iterations if iteration.evaluation
    ]
    write_whole(path, as_csv(("iteration", "sampled", "greedy"), rows))


def _success(evaluation: Reference) -> list[float]:
    metrics = default_store().metrics(evaluation)
    return [metrics["sampled/success"], metrics["greedy/success"]]


def _write_training(path: Path, run: Run) -> None:
    """Write one row per batch; an empty cell is an undefined number, such as the entropy of a skipped batch."""
    columns = iteration_stages.tabled_metrics()
    rows = []
    for iteration in run.iterations:
        row: list[Any] = [iteration.number]
        for artifact, names in columns.items():
            metrics = default_store().metrics(iteration.artifacts[artifact])
            row += [metrics.get(name, "") for name in names]
        rows.append(row)
    write_whole(path, as_csv(("iteration", *(name for names in columns.values() for name in names)), rows))


def _by_mode(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Turn the names `mode/name` into a nested mapping."""
    groups: dict[str, dict[str, float]] = {}
    for key, value in sorted(metrics.items()):
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    return groups


def _files_of(reference: Reference) -> list[Path]:
    """The artifact's files, including its manifest, against whose digests copies of them can be checked."""
    return sorted(default_store().folder(reference).iterdir())


def _write_policy(folder: Path, policy: Reference, prepared: Prepared) -> None:
    """Replace a folder by the files from which transformers loads a policy: configuration, weights and tokenizer."""
    with MODELS.whole_policy(policy) as model:
        tokenizer = (path for path in _files_of(prepared.tokenizer) if path.name != MANIFEST)
        _write_folder(folder, [*model_files(model), *tokenizer])


def _write_folder(folder: Path, files: Iterable[Path]) -> None:
    """Replace a folder by copies of these files and folders."""
    with _replacement(folder) as partial:
        _copy(files, partial)


@contextmanager
def _replacement(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill; it replaces the folder of this name when the block ends without an error."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    # A folder cannot be renamed onto one with files. DVC has removed it anyway, unless the stage is run by hand.
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(partial, folder)


def _copy(files: Iterable[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in files:
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            shutil.copyfile(path, folder / path.name)


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
