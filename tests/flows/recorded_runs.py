"""Runs whose "policies" are mixtures of scripted baselines: real worlds, artifacts and MLflow, no training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer, models

from tasks.playing import save_rollout
from tasks.prepare.materials import task_set
from turnwise.agent.playing import play_with_script
from turnwise.config.schema import BESIDE_RESULTS
from turnwise.data.outcomes import EarlyEnd
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory_files import SAMPLED
from turnwise.experiment import Experiment, load
from turnwise.policy.token_texts import TOKENIZER_FILE
from turnwise.project import home
from turnwise.seeding import generator
from turnwise.store import Reference, default_store
from turnwise.tracking import Recorder
from turnwise.tracking.finding import ARTIFACTS_FILE, BASELINES_FILE, BaselinesArtifacts, RunArtifacts
from turnwise.tracking.runs import SEEDS
from turnwise.training_runs.state import TaskSetParameters, play_parameters
from turnwise.world import SPLITS, Split

NONE_ENDED: Mapping[str, EarlyEnd] = {}
NONE_LEFT_OUT: Mapping[str, str] = {}
ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"


def tiny(*settings: str) -> Experiment:
    return load(ROOT / "params.yaml", [TINY], settings)


def tracking_uri() -> str:
    """Of the present home."""
    return f"sqlite:///{home() / 'mlflow.db'}"


def record(
    ablation: str,
    skills: dict[str, float],
    seeds: tuple[int, ...],
    experiment: Experiment,
    version: str = "1",
    final_test: bool = True,
    ended: Mapping[str, EarlyEnd] = NONE_ENDED,
    left_out: Mapping[str, str] = NONE_LEFT_OUT,
    race: str | None = None,
) -> None:
    """Record an ablation whose variants play as the oracle with such a probability, and at random otherwise.

    `ended` and `left_out` name runs that a guard or an alarm has ended, and a fault has left out. `race` says after how
    many seeds comparisons ended, where seeds were added.
    """
    recorder = Recorder(tracking_uri(), "turnwise", home() / "mlflow")
    until = {} if race is None else {"ablation": {"seeds": {"until": "decided", "at_most": 20}}}
    parent = recorder.parent(ablation, ablation, until)
    if race:
        parent.tag(SEEDS, race)
    counts = (8, 6, experiment.data.test_tasks)
    task_sets = {
        split: task_set.fn(TaskSetParameters(world=experiment.world, split=split, tasks=tasks))
        for split, tasks in zip(SPLITS, counts, strict=True)
    }
    with default_store().write("tokenizer") as draft:  # scripted baseline policies have no tokens to spell
        Tokenizer(models.BPE()).save(str(draft.folder / TOKENIZER_FILE))
    made_tokenizer = draft.reference
    with default_store().write("policy") as draft:
        (draft.folder / "content.txt").write_text(f"{ablation} warm start")
    default_store().record_clock(draft.reference, {"seconds": 70.0})
    warm_start = draft.reference
    known = {"random": 0.0, "oracle": 1.0, "warm start": 0.3}
    baselines = {name: played(experiment, task_sets, "test", skill, name) for name, skill in known.items()}
    parent.log_text(BaselinesArtifacts(evaluations=baselines).model_dump_json(), BASELINES_FILE)
    for variant, skill in skills.items():
        for seed in seeds:
            name = f"{variant} seed {seed}"
            tags = {"variant": variant, "world_version": version}
            child = recorder.child(parent, name, f"{ablation} {name}", {}, tags)
            own = f"{ablation} {name}"
            made = RunArtifacts(
                variant=variant,
                seed=seed,
                experiment=experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS, "ablation", "variants"}),
                prepared={
                    **{f"{split}_task_set": made for split, made in task_sets.items()},
                    "tokenizer": made_tokenizer,
                    "warm_start": warm_start,
                },
                start=played(experiment, task_sets, "validation", 0.3, f"{own} start"),
                iterations=[
                    {"critic": warm_start, **iteration(experiment, task_sets, skill * number / 2, own, number)}
                    for number in range(1, 3 if name not in ended else ended[name].iteration + 1)
                ],
                ended=ended.get(name),
                test=played(experiment, task_sets, "test", skill, own) if final_test and name not in left_out else None,
            )
            child.log_text(made.model_dump_json(), ARTIFACTS_FILE)
            if name in left_out:
                child.leave_out(left_out[name], "another engine")
            else:
                child.finish("result")
    parent.finish("result")


def played(
    experiment: Experiment, task_sets: Mapping[Split, Reference], split: Split, skill: float, name: str
) -> Reference:
    """An evaluation of the mixture: four episodes of each task."""
    tasks = tasks_of(task_sets[split], split)
    masters = generator(3, name, split).random(4 * len(tasks)) < skill
    found = play_with_script(
        play_parameters(experiment),
        tasks,
        4,
        lambda episode, turn: "oracle" if masters[episode] else "random",
        int(generator(4, name).integers(1000)),
    )
    with default_store().write("evaluation") as draft:
        save_rollout(draft, found, SAMPLED)
    return draft.reference


def iteration(
    experiment: Experiment, task_sets: Mapping[Split, Reference], skill: float, name: str, number: int
) -> dict[str, Reference]:
    """A batch of 100 tokens per iteration and its update, a second each, and evaluations."""
    made = {}
    for kind, clock in (("rollout", {"seconds": 1.0, "sampled_tokens": 100.0}), ("policy", {"seconds": 1.0})):
        with default_store().write(kind) as draft:
            (draft.folder / "content.txt").write_text(f"{name} {number} {kind}")
        default_store().record_clock(draft.reference, clock)
        made[kind] = draft.reference
    evaluation = played(experiment, task_sets, "validation", skill, f"{name} {number}")
    return {**made, "evaluation": evaluation, "evaluation_at_horizon": evaluation}
