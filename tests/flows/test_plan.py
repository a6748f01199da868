"""What would be computed is counted before anything is, also for machines that this one is not."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands.plan import show_plan
from flows.prepare import draw_tasks
from flows.runtime.disk import PlannedRun, planned_run, require_budget
from tests.envs.search.corpus_samples import RIVERS, SOURCES, write_corpus
from turnwise.data.task_sets import task_set_digest, tasks_of
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.records.record import recorded_store
from turnwise.world import SPLITS

ROOT = Path(__file__).parents[2]
PARAMETERS = ROOT / "tests" / "parameters.yaml"
MR = {"ablation.variants": ["grpo-mr"]}
PAPER = ROOT / "experiments" / "paper"
PAPERS = {
    **{path.stem: [path] for path in sorted(PAPER.glob("*.yaml"))},
    **{
        f"{path.parent.name}-{path.stem}": [path.parent.with_suffix(".yaml"), path]
        for path in sorted(PAPER.glob("*/*.yaml"))
    },
}
"""The presets of the papers: each file of the folder, and what is laid over it."""


def questions(folder: Path) -> Path:
    path = folder / "questions.jsonl"
    lines = [
        f'{{"question": "Where does the {river} rise?", "answer": ["{source}"]}}\n'
        for river, source in zip(RIVERS, SOURCES, strict=True)
    ]
    path.write_text("".join(lines))
    return path


def fresh_clone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where none of the files is that a paper's worlds read."""
    shutil.copy(ROOT / "params.yaml", folder)
    monkeypatch.chdir(folder)


def plan(experiment: Experiment) -> str:
    said = io.StringIO()
    show_plan(experiment, Console(file=said, width=80))
    return said.getvalue()


@pytest.mark.parametrize("overlays", PAPERS.values(), ids=PAPERS)
def test_the_configurations_of_the_papers_make_sense_on_a_machine_that_cannot_run_them(
    overlays: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fresh_clone(tmp_path, monkeypatch)
    experiment = load(PARAMETERS, overlays, to_plan=True)
    said = plan(experiment)
    for variant in experiment.ablation.variants:
        assert f"\n{variant} " in said
    assert f"{experiment.policy.model}, in bfloat16 on cuda, sampled by vllm" in said
    assert max(len(line) for line in said.splitlines()) <= 80


def test_task_sets_that_are_recorded_are_not_drawn_again(
    prefect_server: str, turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(PARAMETERS, [], MR)
    fresh = plan(experiment)
    drawn = [draw_tasks(experiment, split).make() for split in SPLITS]
    tasks = {split: tasks_of(reference, split) for split, reference in zip(SPLITS, drawn, strict=True)}
    monkeypatch.delattr(type(experiment.made_world), "tasks")
    recorded = plan(experiment)
    for split in SPLITS:
        line = f"{split:<12}{len(tasks[split])} tasks of {experiment.world.name}, {task_set_digest(tasks[split])}\n"
        assert line in fresh and line in recorded


def test_task_sets_are_drawn_as_soon_as_their_files_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh_clone(tmp_path, monkeypatch)
    overlay = ROOT / "experiments" / "paper" / "mt_grpo.yaml"
    few = {f"data.{split}_tasks": 8 for split in ("train", "validation", "test")}
    files = {f"world.parameters.{name}": f"{name}.jsonl" for name in ("questions", "corpus")}
    questions(tmp_path)
    with pytest.raises(ConfigurationError, match=r"world\.parameters\.corpus.*corpus\.jsonl.*TW-missing-file"):
        load(PARAMETERS, [overlay], {**few, **files})
    said = plan(load(PARAMETERS, [overlay], {**few, **files}, to_plan=True))
    assert "task sets   not drawn before corpus.jsonl is there" in said and "8 tasks" not in said
    write_corpus(tmp_path)
    assert "train       8 tasks of search_corpus, " in plan(load(PARAMETERS, [overlay], {**few, **files}))


def test_the_work_is_counted() -> None:
    settings = {
        "optimization.iterations": 25,
        "rollout.prompts": 4,
        "rollout.group_size": 3,
        "optimization.mini_batches": 2,
        "optimization.epochs": 2,
        "agent.maximum_reply_tokens": 10,
        "evaluation.every": 10,
        "evaluation.samples": 3,
        "data.validation_tasks": 5,
        "data.test_tasks": 7,
        "monitors.probe_every": 5,
    }
    stages = {"rollout": 25, "probe": 5, "credit": 25, "update": 25, "evaluate": 3, "health": 25}
    # 25 x 4 x 3 episodes of two turns of ten tokens; 25 x 2 x 2 steps; the validation tasks before the first iteration
    # and after the 10th, 20th and 25th, the test tasks once: (4 x 5 + 7) tasks, each once greedily and three times not.
    experiment = load(PARAMETERS, settings=settings)
    assert planned_run(experiment, "grpo-or") == PlannedRun(
        "grpo-or", "grpo", 300, 600, 6000, 100, 108, False, stages, evaluations=3, calls=108 + 2
    )


def test_a_long_name_takes_two_lines_and_no_number_is_cut() -> None:
    name = "grpo-with-outcome-rewards-alone-and-a-wide-clip-range"
    variants = {"ablation.variants": [name], f"variants.{name}": {"credit": {"estimator": "reinforce++-baseline"}}}
    lines = plan(load(PARAMETERS, settings=variants)).splitlines()
    heading = next(place for place, line in enumerate(lines) if line.startswith("variant "))
    assert lines[heading].split() == ["variant", "estimator", "episodes", "tokens", "steps", "evaluated"]
    table = lines[heading + 2 : lines.index("", heading)]
    assert len(table) > 1 and "".join(line.split(" ")[0] for line in table) == name
    assert max(map(len, lines[heading : heading + 2])) <= 80 and "…" not in "".join(lines)


def test_branching_is_counted_with_a_group_for_each_state() -> None:
    base = load(PARAMETERS)
    branching = load(PARAMETERS, settings={"rollout.scheme": "branching"})
    assert planned_run(branching, "grpo-or").episodes == 2 * planned_run(base, "grpo-or").episodes


def test_further_rounds_of_sampling_are_counted() -> None:
    mixed = {"selection": {"rule": "mixed", "options": {"maximum_rounds": 4}}}
    one, four = (planned_run(load(PARAMETERS, settings=each), "grpo-or") for each in ({}, mixed))
    assert (four.episodes, four.reply_tokens) == (4 * one.episodes, 4 * one.reply_tokens)


def test_an_evaluation_at_the_turn_limit_of_training_is_counted_besides() -> None:
    shorter = {"curriculum": {"rule": "fixed", "options": {"limit": 1}}}
    whole, limited = (planned_run(load(PARAMETERS, settings=each), "grpo-or") for each in ({}, shorter))
    assert limited.evaluated == 2 * whole.evaluated and limited.evaluations == whole.evaluations


@pytest.mark.parametrize(
    ("budget", "own"),
    [
        ({"iterations": 3}, {"optimization": {"iterations": 2}}),
        ({"optimizer_steps": 9}, {"optimization": {"iterations": 4, "epochs": 1, "mini_batches": 2}}),
    ],
)
def test_a_budget_that_a_variant_cannot_spend_by_its_own_settings_is_refused(
    budget: dict[str, int], own: dict[str, object]
) -> None:
    settings = {"optimization.iterations": 5, "ablation.budget": budget, "ablation.variants": ["own"]}
    experiment = load(PARAMETERS, settings={**settings, "variants.own": own})
    with pytest.raises(ConfigurationError, match=r"own makes at most .*TW-large-budget"):
        require_budget(experiment)


def test_a_budget_of_sampled_tokens_that_further_rounds_can_spend_is_allowed() -> None:
    most = planned_run(load(PARAMETERS), "grpo-or").reply_tokens
    settings = {"ablation.budget": {"sampled_tokens": most + 1}, "ablation.variants": ["grpo-or"]}
    require_budget(load(PARAMETERS, settings={**settings, "selection": {"rule": "mixed", "options": {}}}))
    with pytest.raises(ConfigurationError, match="TW-large-budget"):
        require_budget(load(PARAMETERS, settings=settings))


def test_thoughts_and_further_attempts_are_counted() -> None:
    mode = {"name": "reflect", "tokens": 20, "attempts": 3}
    acting = load(PARAMETERS, settings=MR)
    reflecting = load(PARAMETERS, settings={**MR, "agent.mode": mode})
    # Replies of 40 tokens; three times as many, and a lesson of 20 with each.
    most = planned_run(acting, "grpo-mr").reply_tokens
    assert planned_run(reflecting, "grpo-mr").reply_tokens == most // 40 * 3 * 60


def test_a_task_set_that_the_world_cannot_fill_is_refused() -> None:
    experiment = load(PARAMETERS, settings={"data.train_tasks": 10**6})
    with pytest.raises(ConfigurationError, match=r"data\.train_tasks.*TW-too-few-tasks"):
        show_plan(experiment, Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("settings", "processes", "said"),
    [
        ({}, None, "Runs: 3, made by this process, one after the other."),
        ({}, 2, "Runs: 3, shared by 2 processes of this machine."),
        ({"compute.runner.workers": 8}, None, "Runs: 3, shared by 3 processes of this machine."),
        (
            {"compute.runner": {"kind": "ray", "address": "auto", "cores": 2.0, "cards": 0.5, "memory_gib": 8.0}},
            None,
            "Runs: 3, made by the Ray cluster at auto, each with 2 cores, 0.5 cards, 8 GiB.",
        ),
    ],
)
def test_it_says_who_makes_the_runs(settings: dict[str, object], processes: int | None, said: str) -> None:
    experiment = load(PARAMETERS, settings={**MR, "ablation.seeds": [1, 2, 3], **settings})
    shown = io.StringIO()
    show_plan(experiment, Console(file=shown, width=120), processes)
    assert said in shown.getvalue()


def test_recorded_runs_are_found_without_the_files_that_the_projects_world_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_files = load(PARAMETERS, [PAPER / "mt_grpo.yaml"], to_plan=True)
    (tmp_path / "params.yaml").write_text(without_files.model_dump_json())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    assert recorded_store(None) == f"sqlite:///{tmp_path / 'home' / 'mlflow.db'}"
