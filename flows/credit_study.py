"""The credit study: a stored policy plays the validation task set; every estimator is compared with replays."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from rich.console import Console

from flows.prepare import prepare_materials, prepare_policy
from flows.runtime.flow_runs import untagged_tasks
from tasks.credit_study.credit_study import FEWEST_REPLAYS, StudyParameters, credit_study, read_study
from tasks.credit_study.replays import EpisodesParameters, ReplaysParameters, replays, study_episodes
from tasks.credit_study.score_vectors import VectorsParameters, score_vectors
from turnwise import seeding
from turnwise.credit_study.page import page
from turnwise.credit_study.study import Study
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.model_files import model_files
from turnwise.project import project_root
from turnwise.reporting.data.tables import as_csv
from turnwise.store import Reference, default_store
from turnwise.store.atomic_write import write_whole
from turnwise.training_runs.display import Display
from turnwise.training_runs.state import Materials, play_parameters

FOLDER = "credit-study"
DIMENSIONS = 4096
"""Size of the sketch of a score vector: a cosine is accurate to 1.6%."""


@dataclass(frozen=True)
class StudyRun:
    """A study and its provenance."""

    study: Study
    digest: str
    """Digest of the study: the same parameters and seeds give the same digest."""
    about: Mapping[str, str]
    folder: Path
    """Folder of the page, the table and the figure."""
    computed: int
    found: int
    """Numbers of stages that were computed now, and that came from the cache."""


@flow(
    name="credit study",
    flow_run_name="credit study of {experiment.world.name}",
    validate_parameters=False,
    persist_result=False,
)
@untagged_tasks
def study_credit(
    experiment: Experiment, policy: str | None, tasks: int, replay_count: int, quiet: bool = False
) -> StudyRun:
    """Study the policy that `policy` names (None: the experiment's warm start) and write `results/credit-study`.

    Raises ConfigurationError, before any compute, for numbers that are out of range or a policy that does not exist.
    """
    _require_sense(experiment, tasks, replay_count)
    named = None if policy is None else find_policy(policy)
    display = Display(Console(quiet=quiet), _expected_stages(named is None))
    with display.showing():
        materials = prepare_materials(experiment)
        if named is None:
            named = prepare_policy(experiment, materials).warm_start
        else:
            _require_vocabulary(named, materials)
        artifacts = _stages(experiment, materials, named, tasks, replay_count)
    study = read_study(artifacts["study"])
    about = _about(experiment, named, artifacts, replay_count)
    folder = project_root() / "results" / FOLDER
    write_study(study, about, folder)
    return StudyRun(study, artifacts["study"].digest, about, folder, display.computed, display.found)


def find_policy(name: str) -> Reference:
    """The stored policy with this digest or unique prefix of one; or a policy from a folder, copied into the store.

    Raises ConfigurationError if no policy matches, or more than one.
    """
    if Path(name).is_dir():
        return store_policy(Path(name))
    kept = default_store().root / "policy"
    digests = [each.digest for each in default_store().references("policy")]
    matches = [digest for digest in digests if digest.startswith(name)]
    if len(matches) != 1:
        raise ConfigurationError(
            f"--policy must be a folder with config.json and *.safetensors, or the digest of one policy in {kept} (or "
            f"its beginning); {name!r} names {len(matches) or 'none'} of {len(digests)}"
        )
    return Reference(kind="policy", digest=matches[0])


def write_study(study: Study, about: Mapping[str, str], folder: Path) -> None:
    """Write the page, the table as CSV and the figure."""
    from turnwise.credit_study.figures import credit_figure, header, rows

    figure = credit_figure(study)
    write_whole(folder / "table.csv", as_csv(header(study), rows(study)))
    write_whole(folder / f"{figure.name}.png", figure.png())
    write_whole(folder / "README.md", page(study, about, f"{figure.name}.png"))


def _stages(
    experiment: Experiment, materials: Materials, policy: Reference, tasks: int, replay_count: int
) -> dict[str, Reference]:
    """Run the stages of the study; returns their artifacts by name."""
    compute, temperature = experiment.compute, experiment.rollout.temperature
    seed = seeding.derive(experiment.evaluation.seed, "credit study")
    play = dict(play_parameters(experiment))
    episodes = study_episodes(
        EpisodesParameters(
            **play,
            compute=compute,
            tasks=tasks,
            replicas=experiment.rollout.group_size,
            temperature=temperature,
            seed=seed,
        ),
        policy=policy,
        tokenizer=materials.tokenizer,
        task_set=materials.validation_task_set,
    )
    replayed = replays(
        ReplaysParameters(**play, compute=compute, replays=replay_count, temperature=temperature, seed=seed),
        policy=policy,
        tokenizer=materials.tokenizer,
        episodes=episodes,
    )
    vectors = score_vectors(
        VectorsParameters(compute=compute, temperature=temperature, dimensions=DIMENSIONS, seed=seed),
        policy=policy,
        episodes=episodes,
    )
    study = credit_study(
        StudyParameters(rewards=experiment.rewards, turn_limit=experiment.made_world.limits.turns, seed=seed),
        episodes=episodes,
        replays=replayed,
        score_vectors=vectors,
    )
    return {"episodes": episodes, "replays": replayed, "score vectors": vectors, "study": study}


def _require_sense(experiment: Experiment, tasks: int, replay_count: int) -> None:
    if not 2 <= tasks <= experiment.data.validation_tasks:
        raise ConfigurationError(
            f"--tasks must be from 2 to data.validation_tasks, {experiment.data.validation_tasks}, of which the first "
            f"are played; found {tasks}"
        )
    if replay_count < FEWEST_REPLAYS:
        raise ConfigurationError(
            f"--replays must be at least {FEWEST_REPLAYS}, or nobody could say how exact the truth is; found "
            f"{replay_count}"
        )
    if experiment.rollout.group_size < 2:
        raise ConfigurationError(
            f"rollout.group_size must be at least 2, to form a group; found {experiment.rollout.group_size}"
        )


def _require_vocabulary(policy: Reference, materials: Materials) -> None:
    """Raise ConfigurationError if the policy's vocabulary is smaller than that of the experiment's tokenizer."""
    from turnwise.policy.tokenizer import load_tokenizer

    known = json.loads((default_store().folder(policy, ["config.json"]) / "config.json").read_text(encoding="utf-8"))[
        "vocab_size"
    ]
    needed = len(load_tokenizer(default_store().folder(materials.tokenizer)))
    if known < needed:
        raise ConfigurationError(
            f"the policy must have been trained with the experiment's tokenizer, of {needed} tokens; {policy} knows "
            f"{known}: name the overlay that it was trained with"
        )


def store_policy(folder: Path) -> Reference:
    """Copy a folder in Hugging Face's layout into the store as a policy artifact."""
    files = model_files(folder)
    if not {"config.json", "model.safetensors"} <= {path.name for path in files}:
        raise ConfigurationError(f"--policy {folder}: a policy's folder must hold config.json and model.safetensors")
    with default_store().write("policy") as draft:
        for path in files:
            shutil.copyfile(path, draft.folder / path.name)
    return draft.reference


def _about(
    experiment: Experiment, policy: Reference, artifacts: Mapping[str, Reference], replay_count: int
) -> dict[str, str]:
    replayed, episodes = default_store().metrics(artifacts["replays"]), default_store().metrics(artifacts["episodes"])
    return {
        "world": experiment.world.name,
        "policy": str(policy),
        "success of the episodes": f"{episodes['success']:.3f}",
        "episodes per task": str(experiment.rollout.group_size),
        "continuations": f"{replay_count} from each of {replayed['states']:.0f} states, "
        f"{replayed['sampled_tokens']:,.0f} sampled tokens",
        "lost": f"{episodes['lost_episodes']:.0f} episodes, {replayed['lost']:.0f} continuations",
        "gradient": f"of all parameters, as a count sketch of {DIMENSIONS} numbers (a cosine is right to "
        f"{DIMENSIONS**-0.5:.1%})",
        "temperature": f"{experiment.rollout.temperature:g}",
        "study": str(artifacts["study"]),
    }


def _expected_stages(with_warm_start: bool) -> Counter[str]:
    stages = [*["task_set"] * 3, "demonstrations", "tokenizer"]
    stages += ["initial_policy", "warm_start"] if with_warm_start else []
    stages += ["study_episodes", "replays", "score_vectors", "credit_study"]
    return Counter(stages)
