"""What each stage of dvc.yaml depends on that DVC cannot see: a digest for each task that the stage calls.

    fingerprints/prepare.json, warm_start.json, train/<variant>.json, report.json

They are of the code that computes, without its comments, and of what lies outside the project, such as a world's data
and a model's weights: see `tasks.caching.Dependencies.beside_settings`. So DVC runs a stage again where something would
be computed again, and not after every edit in a folder.
"""

from __future__ import annotations

import json
import shutil

from flows.plan import plan_ablation, stages_of_run
from flows.prepare import evaluate_baselines, evaluate_warm_start, materials, prepare_policy
from tasks.caching import dependencies_of
from tasks.calls import Call, Make
from turnwise.experiment import Experiment
from turnwise.project import project_root
from turnwise.store import Reference
from turnwise.store.atomic_write import write_whole
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import definition_digest

FOLDER = "fingerprints"
WRITERS = {
    "prepare": "materialise_materials",
    "warm_start": "materialise_warm_start",
    "train": "materialise_run",
    "report": "materialise_report",
}
"""The functions of `flows.dvc.stages` that write each stage's files. Importing them would import Prefect."""


def write_fingerprints(experiment: Experiment) -> None:
    """Replace the folder of fingerprints. Raises ConfigurationError where a world, its data or a model is missing."""
    folder = project_root() / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    for name, calls in calls_by_stage(experiment).items():
        tasks = {call.stage: digest_of(dependencies_of(call.task).beside_settings(call.parameters)) for call in calls}
        writer_digest = definition_digest("flows.dvc.stages", WRITERS[name.partition("/")[0]], package="flows.dvc")
        text = json.dumps({"files": writer_digest, **dict(sorted(tasks.items()))}, indent=1)
        write_whole(folder / f"{name}.json", f"{text}\n")


def calls_by_stage(experiment: Experiment) -> dict[str, list[Call]]:
    """The calls that each stage of dvc.yaml makes; of `train` those of each variant, whose seeds make the same."""
    calls: dict[str, list[Call]] = {"prepare": [], "warm_start": []}

    def into(stage: str) -> Make:
        def take(call: Call) -> Reference:
            calls[stage].append(call)
            return call.unrecorded

        return take

    all_materials = materials(experiment, into("prepare"))
    evaluate_baselines(experiment, all_materials, into("prepare"))
    evaluate_warm_start(experiment, prepare_policy(experiment, all_materials, into("warm_start")), into("warm_start"))
    for variant in experiment.ablation.variants:
        stages = stages_of_run(experiment.variant(variant), variant, experiment.ablation.all_seeds[0])
        calls[f"train/{variant}"] = [each.call for each in stages]
    calls["report"] = [plan_ablation(experiment, looks=False).stages[-1].call]
    return calls
