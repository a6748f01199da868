"""The credit study: a stored policy plays the validation task set; every estimator is compared with replays."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from rich.console import Console

from flows.learning import credit_rollout, first_critic, rescore_rollout, train_critic, value_rollout
from flows.prepare import prepare_materials, prepare_policy
from flows.python.recorded import runs
from flows.runtime.flow_runs import untagged_tasks
from flows.sampling import roll_out
from tasks.credit_study.credit_study import StudyParameters, credit_study, read_study
from tasks.credit_study.replays import EpisodesParameters, ReplaysParameters, replays, study_episodes
from tasks.credit_study.score_vectors import VectorsParameters, score_vectors
from turnwise import seeding
from turnwise.config.overlays import merged
from turnwise.config.schema import Credit
from turnwise.credit import ESTIMATORS
from turnwise.credit.batch import RESCORED, Rescored
from turnwise.credit.requirements import require_credit
from turnwise.credit_study.page import page
from turnwise.credit_study.study import FEWEST_REPLAYS, RULES, Study, title_of
from turnwise.credit_study.success import SuccessStudy, success_study
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build
from turnwise.policy.model_files import model_files
from turnwise.project import project_root
from turnwise.reporting.data.tables import as_csv
from turnwise.statistics.curves import AtEqualBudget
from turnwise.store import Reference, default_store
from turnwise.store.atomic_write import write_whole
from turnwise.store.provenance import matching_artifacts
from turnwise.tracking.finding import RecordedRun
from turnwise.training_runs.display import Display
from turnwise.training_runs.state import Iteration, Materials, Models, Prepared, Run, play_parameters

FOLDER = "credit-study"
ALIKE = (
    *("world", "agent", "rewards", "data", "policy", "warm_start", "rollout", "selection", "curriculum"),
    *("optimization", "evolution", "evaluation"),
)
"""The sections in which runs must be as the experiment is, so that their success is that of their rules."""
CRITIC_ROLLOUTS = 4
"""Rollouts of training tasks that the critic of the study learns from, each as large as one of training."""
DIMENSIONS = 4096
"""Size of the sketch of a score vector: a cosine is accurate to 1.6%."""


AXES = ("sampled_tokens", "seconds")
"""What runs have spent equally where their success is compared."""


@dataclass(frozen=True)
class StudyRun:
    """A study and its provenance."""

    study: Study
    digest: str
    """Digest of the study: the same parameters and seeds give the same digest."""
    about: Mapping[str, str]
    folder: Path
    """Folder of the page, the table and the figure."""
    success: Sequence[SuccessStudy]
    """Closeness held against the success of recorded runs, where some were named, after as many sampled tokens and
    after as many seconds."""
    computed: int
    found: int
    """Numbers of stages that were computed now, and that came from the cache."""


@dataclass(frozen=True)
class _Artifacts:
    """What the stages of a study made, of which its page tells."""

    episodes: Reference
    replays: Sequence[Reference]
    """Those of each task."""
    critic: Reference
    study: Reference


@flow(
    name="credit study",
    flow_run_name="credit study of {experiment.world.name}",
    validate_parameters=False,
    persist_result=False,
)
@untagged_tasks
def study_credit(
    experiment: Experiment,
    policy: str | None,
    tasks: int,
    replay_count: int,
    success: Sequence[str] = (),
    quiet: bool = False,
    critic_rollouts: int = CRITIC_ROLLOUTS,
) -> StudyRun:
    """Study the policy that `policy` names (None: the experiment's warm start) and write `results/credit-study`.

    The critic of the rules that need one has learned from so many rollouts of the policy on training tasks.
    The closeness of each rule is held against the success of the recorded runs that were trained with it, which
    `success` names as `turnwise.runs` takes them: Prefect refuses parameters of more than 512 KiB, as forty runs are.

    Raises ConfigurationError, before any compute, for numbers that are out of range, a policy or runs that do not
    exist, and runs that differ from one another, or from the experiment, in more than their rules.
    """
    _require_sense(experiment, tasks, replay_count)
    success_runs = list(runs(*success)) if success else []
    recorded_success = _recorded_success(experiment, success_runs) if success_runs else None
    stored_policy = None if policy is None else find_policy(policy)
    display = Display(Console(quiet=quiet), _expected_stages(experiment, stored_policy is None, tasks, critic_rollouts))
    with display.showing():
        materials = prepare_materials(experiment)
        if stored_policy is None:
            prepared = prepare_policy(experiment, materials)
        else:
            _require_vocabulary(stored_policy, materials)
            prepared = Prepared(**vars(materials), warm_start=stored_policy)
        artifacts = _stages(experiment, prepared, tasks, replay_count, critic_rollouts)
    study = read_study(artifacts.study)
    about = _about(experiment, prepared.warm_start, artifacts, replay_count, critic_rollouts)
    success_studies: list[SuccessStudy] = []
    if recorded_success is not None:
        titles, at_budgets = recorded_success
        seed = seeding.derive(experiment.evaluation.seed, FOLDER)
        success_studies += [success_study(study, titles, each, seed=seed) for each in at_budgets]
        about |= {"runs": ", ".join(dict.fromkeys(run.ablation for run in success_runs))}
    folder = project_root() / "results" / FOLDER
    write_study(study, about, folder, success_studies)
    return StudyRun(study, artifacts.study.digest, about, folder, success_studies, display.computed, display.found)


def find_policy(name: str) -> Reference:
    """The stored policy with this digest or unique prefix of one; or a policy from a folder, copied into the store.

    Raises ConfigurationError if no policy matches, or more than one.
    """
    if Path(name).is_dir():
        return store_policy(Path(name))
    matches = [each for each in matching_artifacts(default_store(), name) if each.kind == "policy"]
    if len(matches) != 1:
        raise ConfigurationError(
            "--policy must be a folder with config.json and *.safetensors, or the digest of one policy in "
            f"{default_store().root / 'policy'}, or at least 6 characters of its beginning; {name!r} names "
            f"{len(matches) or 'none'}",
            "TW-unknown-policy",
        )
    return matches[0]


def write_study(study: Study, about: Mapping[str, str], folder: Path, success: Sequence[SuccessStudy] = ()) -> None:
    """Write the page, the tables as CSV and the figures."""
    from turnwise.credit_study.figures import credit_figure, header, rows, success_figure

    figure = credit_figure(study)
    write_whole(folder / "table.csv", as_csv(header(study), rows(study)))
    write_whole(folder / f"{figure.name}.png", figure.png())
    for earlier in folder.glob("success*"):  # of a study that was held against runs
        earlier.unlink()
    figures = [success_figure(each) for each in success]
    for each in figures:
        write_whole(folder / f"{each.name}.csv", as_csv(each.header, each.data))
        write_whole(folder / f"{each.name}.png", each.png())
    names = [f"{each.name}.png" for each in figures]
    write_whole(folder / "README.md", page(study, about, f"{figure.name}.png", [*zip(success, names, strict=True)]))


def _recorded_success(
    experiment: Experiment, runs: Sequence[RecordedRun]
) -> tuple[dict[str, str], list[AtEqualBudget]]:
    """The title of each variant's rule, and the success of the runs after as many sampled tokens, and seconds.

    Raises ConfigurationError for runs that differ in more than their rules, and where tokens were not counted.
    """
    from turnwise.reporting.data.run_groups import at_equal_cost, grouped
    from turnwise.training_runs.iteration_stages import spending

    groups, own = grouped(runs), experiment.model_dump(mode="json")
    titles: dict[str, str] = {}
    judged = {rule.title for rule in RULES} | _rules_of_variants(experiment).keys()
    for group in groups:
        for run in group.runs.values():
            section = run.artifacts.experiment
            if differing := [name for name in ALIKE if section[name] != own[name]]:
                raise ConfigurationError(
                    f"--success must name runs of this experiment that differ in their credit rules alone; {run.name} "
                    f"has another section {' and '.join(differing)}: give the files that it was run with",
                    "TW-runs-not-comparable",
                )
            titles[group.name] = title_of(run.artifacts.variant, Credit.model_validate(section["credit"]))
    if unknown := {name: title for name, title in titles.items() if title not in judged}:
        raise ConfigurationError(
            f"the study must judge the rule of every run; it does not judge that of {', '.join(unknown)}: give the "
            "files that the runs were made with, whose variants it judges too",
            "TW-unstudied-rule",
        )
    at_equal = [each for each in at_equal_cost(groups, spending()) if each.budget in AXES]
    if AXES[0] not in [each.budget for each in at_equal]:
        raise ConfigurationError(
            "the runs must have recorded how many tokens they sampled; not all of them have", "TW-uncounted-tokens"
        )
    return titles, at_equal


def _stages(
    experiment: Experiment, prepared: Prepared, tasks: int, replay_count: int, critic_rollouts: int
) -> _Artifacts:
    """Run the stages of the study."""
    compute, temperature = experiment.compute, experiment.rollout.temperature
    policy, tokenizer = prepared.warm_start, prepared.tokenizer
    seed = seeding.derive(experiment.evaluation.seed, "credit study")
    play = dict(play_parameters(experiment))
    episode_parameters = EpisodesParameters(
        **play,
        compute=compute,
        tasks=tasks,
        replicas=experiment.rollout.group_size,
        temperature=temperature,
        seed=seed,
    )
    episodes, greedy = (
        study_episodes(
            parameters, policy=policy, tokenizer=tokenizer, task_set=prepared.validation_task_set, label=label
        )
        for parameters, label in (
            (episode_parameters, "credit study"),
            (episode_parameters.changed(replicas=1, temperature=0.0), "credit study: greedy"),
        )
    )
    task_replays = [  # a task at a time, so that what a kill loses is one task's
        replays(
            ReplaysParameters(
                **play, compute=compute, group=group, replays=replay_count, temperature=temperature, seed=seed
            ),
            policy=policy,
            tokenizer=tokenizer,
            episodes=episodes,
            label=f"credit study: task {group + 1} of {tasks}",
        )
        for group in range(tasks)
    ]
    vectors = [
        score_vectors(
            VectorsParameters(compute=compute, group=group, temperature=temperature, dimensions=DIMENSIONS, seed=seed),
            policy=policy,
            episodes=episodes,
            label=f"credit study: task {group + 1} of {tasks}",
        )
        for group in range(tasks)
    ]
    run = _with_critic(experiment, prepared, episodes)
    critic = _fitted_critic(run, critic_rollouts)
    iteration = Iteration(critic_rollouts + 1, Models(policy, critic), None, {"rollout": episodes})
    values = value_rollout(run, iteration).make()
    rescored: dict[str, Reference] = {
        need: rescore_rollout(run, iteration, need).make() for need in RESCORED if _is_needed(need, experiment)
    }
    study = credit_study(
        StudyParameters(
            rewards=experiment.rewards,
            turn_limit=experiment.made_world.limits.turns,
            seed=seed,
            further=_rules_of_variants(experiment),
        ),
        episodes=episodes,
        replays=task_replays,
        score_vectors=vectors,
        values=values,
        rescored=rescored,
        greedy=greedy,
    )
    return _Artifacts(episodes, task_replays, critic, study)


def _with_critic(experiment: Experiment, prepared: Prepared, episodes: Reference) -> Run:
    """A run of the experiment, as it would be with a critic of its own, that has not begun."""
    sections = {
        "credit": {"estimator": "gae", "options": {}, "thought": None},
        "critic": {"trunk": "own", "coefficient": None, "warm_up": 0},
        "rollout": {"scheme": "independent", "trees": None},
        "optimization": {"method": "reinforcement", "reference": None},
    }
    with_critic = build(merged(experiment.model_dump(mode="json"), sections), like=experiment)
    models = Models(prepared.warm_start, None)
    return Run("credit study", experiment.evaluation.seed, with_critic, prepared, models, start=episodes)


def _fitted_critic(run: Run, rollouts: int) -> Reference:
    """A critic that has learned from so many rollouts of the policy on training tasks, as while a critic warms up."""
    critic = first_critic(run).make()
    for number in range(1, rollouts + 1):
        iteration = Iteration(number, Models(run.policy, critic), None)
        iteration.made["rollout"] = roll_out(run, iteration).make()
        iteration.made["values"] = value_rollout(run, iteration).make()
        iteration.made["credit"] = credit_rollout(run, iteration).make()
        critic = train_critic(run, iteration).make()
    return critic


def _rules_of_variants(experiment: Experiment) -> dict[str, Credit]:
    """The rules of the experiment's variants that no study has by itself, by title."""
    usual = {rule.title for rule in RULES}
    credits = {name: experiment.variant(name).credit for name in experiment.ablation.variants}
    return {
        title: Credit(estimator=credit.estimator, options=credit.options)
        for name, credit in credits.items()
        if (title := title_of(name, credit)) not in usual
    }


def _is_needed(need: Rescored, experiment: Experiment) -> bool:
    """Whether this experiment could be trained with the rules that need this."""
    for rule in RULES:
        if need in ESTIMATORS[rule.estimator].needs:
            try:
                require_credit(Credit(estimator=rule.estimator, options=dict(rule.options)), experiment.credit_inputs)
            except ConfigurationError:
                continue
            return True
    return False


def _require_sense(experiment: Experiment, tasks: int, replay_count: int) -> None:
    if not 2 <= tasks <= experiment.data.validation_tasks:
        raise ConfigurationError(
            f"--tasks must be from 2 to data.validation_tasks, {experiment.data.validation_tasks}, of which the first "
            f"are played; found {tasks}",
            "TW-option-range",
        )
    if replay_count < FEWEST_REPLAYS:
        raise ConfigurationError(
            f"--replays must be at least {FEWEST_REPLAYS}, or nobody could say how exact the truth is; found "
            f"{replay_count}",
            "TW-option-range",
        )
    if experiment.rollout.group_size < 2:
        raise ConfigurationError(
            f"rollout.group_size must be at least 2, to form a group; found {experiment.rollout.group_size}",
            "TW-small-group",
        )


def _require_vocabulary(policy: Reference, materials: Materials) -> None:
    """Raise ConfigurationError if the policy's vocabulary is smaller than that of the experiment's tokenizer."""
    from turnwise.policy.tokenizer import load_tokenizer

    vocabulary_size = json.loads(
        (default_store().folder(policy, ["config.json"]) / "config.json").read_text(encoding="utf-8")
    )["vocab_size"]
    needed = len(load_tokenizer(default_store().folder(materials.tokenizer)))
    if vocabulary_size < needed:
        raise ConfigurationError(
            f"the policy must have been trained with the experiment's tokenizer, of {needed} tokens; {policy} knows "
            f"{vocabulary_size}: name the overlay that it was trained with",
            "TW-foreign-tokenizer",
        )


def store_policy(folder: Path) -> Reference:
    """Copy a folder in Hugging Face's layout into the store as a policy artifact."""
    files = model_files(folder)
    if not {"config.json", "model.safetensors"} <= {path.name for path in files}:
        raise ConfigurationError(
            f"--policy {folder}: a policy's folder must hold config.json and model.safetensors", "TW-incomplete-policy"
        )
    with default_store().write("policy") as draft:
        for path in files:
            shutil.copyfile(path, draft.folder / path.name)
    return draft.reference


def _about(
    experiment: Experiment,
    policy: Reference,
    artifacts: _Artifacts,
    replay_count: int,
    critic_rollouts: int,
) -> dict[str, str]:
    episodes, critic = (default_store().metrics(artifact) for artifact in (artifacts.episodes, artifacts.critic))
    replay_metrics = [default_store().metrics(task_replays) for task_replays in artifacts.replays]
    totals = {name: math.fsum(each[name] for each in replay_metrics) for name in ("states", "sampled_tokens", "lost")}
    return {
        "world": experiment.world.name,
        "policy": str(policy),
        "success of the episodes": f"{episodes['success']:.3f}",
        "episodes per task": str(experiment.rollout.group_size),
        "continuations": f"{replay_count} from each of {totals['states']:.0f} states, "
        f"{totals['sampled_tokens']:,.0f} sampled tokens",
        "lost": f"{episodes['lost_episodes']:.0f} episodes, {totals['lost']:.0f} continuations",
        "gradient": f"of all parameters, as a count sketch of {DIMENSIONS} numbers (a cosine is right to "
        f"{DIMENSIONS**-0.5:.1%})",
        "critic": f"of a trunk of its own, after {critic_rollouts} rollouts of training tasks; explained variance of "
        f"the last one's returns: {critic.get('explained_variance', math.nan):.2f}",
        "temperature": f"{experiment.rollout.temperature:g}",
        "study": str(artifacts.study),
    }


def _expected_stages(experiment: Experiment, with_warm_start: bool, tasks: int, critic_rollouts: int) -> Counter[str]:
    stages = [*["task_set"] * 3, "demonstrations", "tokenizer"]
    stages += ["initial_policy", "warm_start"] if with_warm_start else []
    stages += [
        *["study_episodes"] * 2,
        *["replays"] * tasks,
        *["score_vectors"] * tasks,
        "initial_critic",
        "values",
        "credit_study",
    ]
    stages += ["rollout", "values", "credit", "learn_values"] * critic_rollouts
    stages += ["rescore" for need in RESCORED if _is_needed(need, experiment)]
    return Counter(stages)
