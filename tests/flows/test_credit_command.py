"""`turnwise credit` through the real chain: every state replayed, the same digest again, and what is refused before."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnwise as tw
from flows import ablation
from flows import credit_study as module
from flows import report as reports
from flows.credit_study import StudyRun, find_policy, study_credit
from flows.prepare import prepare_materials, prepare_policy
from tasks.credit_study.replays import states
from turnwise import seeding
from turnwise.credit import ESTIMATORS
from turnwise.credit_study.study import RULES, TRUTH
from turnwise.data.trajectory_files import read_trajectories
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.reporting.html import report_files
from turnwise.results.cells import cell
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RecordedRun

pytestmark = [pytest.mark.engine, pytest.mark.chain]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
TASKS, REPLAYS = 4, 3


def tiny(**settings: object) -> Experiment:
    """A slippery lake, so that replays need the recorded noise; no rule but those that every study has."""
    usual = {"variants": {"a": {"credit": {"estimator": "grpo", "options": {"rewards": "merged"}}}}}
    every = {"world.parameters.success_rate": 0.7, **usual, "ablation.variants": ["a"], **settings}
    return load(ROOT / "params.yaml", [TINY], every)


@pytest.fixture(scope="module")
def project(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("credit_study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder / "home"))
        patch.setattr(module, "project_root", lambda: folder)
        yield folder


def studied(experiment: Experiment, policy: str | None = None) -> StudyRun:
    return study_credit(experiment, policy, TASKS, REPLAYS, quiet=True)


@pytest.fixture(scope="module")
def run(project: Path) -> StudyRun:
    return studied(tiny())


def made(kind: str) -> list[Reference]:
    folders = [path for path in (default_store().root / kind).iterdir() if path.is_dir() and len(path.name) == 32]
    return [Reference(kind=kind, digest=folder.name) for folder in folders]


def test_every_state_was_played_on_from_its_recorded_tokens(run: StudyRun) -> None:
    seed = seeding.derive(0, "credit study")
    of_tasks = made("replays")
    assert len(of_tasks) == TASKS
    continuations = [each for of_task in of_tasks for each in read_trajectories(default_store().folder(of_task))]
    episodes = Reference(kind="rollout", digest=_episodes())
    found = states(read_trajectories(default_store().folder(episodes)), seed)
    assert len(continuations) == REPLAYS * len(found) == REPLAYS * run.study.turns
    for continuation in continuations:
        point = found[continuation.group]
        assert continuation.task == point.trajectory.task
        whole = continuation.segments(every_reply=True)[0]
        assert whole.tokens[: len(point.context)] == point.context
        assert [turn.trained for turn in continuation.turns] == [
            place >= point.turn for place in range(len(continuation.turns))
        ]
    assert {len(point.trajectory.turns) for point in found} == {1, 2}
    assert len({continuation.turns[-1].reply for continuation in continuations}) > 2


def _episodes() -> str:
    records = [record for of_task in made("replays") for record in default_store().lineage(of_task).values()]
    (episodes,) = {str(record["inputs"]["episodes"]) for record in records}  # of as many calls as the tests before made
    return episodes.removeprefix("rollout/")


def test_there_is_a_score_vector_for_every_turn(run: StudyRun) -> None:
    of_tasks = [default_store().metrics(each) for each in made("score_vectors")]
    assert len(of_tasks) == TASKS and sum(each["turns"] for each in of_tasks) == run.study.turns
    assert {each["dimensions"] for each in of_tasks} == {module.DIMENSIONS}


def test_the_study_is_written_for_people_and_for_programs(run: StudyRun) -> None:
    assert sorted(path.name for path in run.folder.iterdir()) == ["README.md", "credit-study.png", "table.csv"]
    page = (run.folder / "README.md").read_text()
    assert "![Every rule compared with the truth](credit-study.png)" in page
    assert f"{TASKS} tasks" in page and run.digest in page
    with (run.folder / "table.csv").open() as file:
        table = {row["rule"]: row for row in csv.DictReader(file)}
    assert list(table) == [figures.title for figures in run.study.figures]
    assert float(table[TRUTH]["gradient_norm"]) > 0
    assert (run.folder / "credit-study.png").read_bytes().startswith(b"\x89PNG")


def test_rules_that_need_a_critic_a_second_reading_or_a_greedy_episode_are_judged(run: StudyRun) -> None:
    judged = {figures.title for figures in run.study.figures}
    assert judged > {"gae", "turn-gae", "archer", "remax", "optimal-token-baseline", "self-distillation"}
    # The lake names no answers, and nobody grew trees.
    assert {"information-gain", "trace", "sweet-rl", "tree-grpo", "at2po"} == run.study.left_out.keys()
    assert "explained variance" in run.about["critic"]


def test_the_rules_of_variants_are_judged_where_no_study_has_them(run: StudyRun) -> None:
    own = {"credit": {"estimator": "grpo", "options": {"deviation": "none", "rewards": "merged"}}}
    usual = {"credit": {"estimator": "rloo", "options": {"rewards": "merged"}}}
    found = studied(tiny(variants={"own": own, "usual": usual}, **{"ablation.variants": ["own", "usual"]}))
    assert (found.computed, found.study.figures[-1].title) == (1, "variant own")
    assert [figures.title for figures in found.study.figures[:-1]] == [figures.title for figures in run.study.figures]
    studied(tiny())  # the page is that of the first again, for the other tests


def test_a_repeat_is_found_and_another_weighting_replays_nothing(run: StudyRun) -> None:
    again = studied(tiny())
    assert (again.digest, again.computed) == (run.digest, 0)
    other = studied(tiny(**{"rewards.format.weight": 0.7}))
    # The study, and what fits a critic to other returns: credit, its values but the first, its lessons; no sampling.
    assert (other.computed, other.digest == run.digest) == (1 + 3 * module.CRITIC_ROLLOUTS, False)
    studied(tiny())  # the page is that of the first again, for the other tests


def test_a_critic_that_learned_from_more_rollouts_changes_nothing_but_the_rules_that_need_it(run: StudyRun) -> None:
    longer = study_credit(tiny(), None, TASKS, REPLAYS, quiet=True, critic_rollouts=module.CRITIC_ROLLOUTS + 1)
    # One more rollout with its values, credit and lesson; the values of the episodes, and the study.
    assert longer.computed == 6 and f"after {module.CRITIC_ROLLOUTS + 1} rollouts" in longer.about["critic"]
    pairs = zip(run.study.figures, longer.study.figures, strict=True)
    changed = {one.title for one, other in pairs if one != other}
    with_critic = {rule.title for rule in RULES if "values" in ESTIMATORS[rule.estimator].needs}
    assert changed == with_critic - run.study.left_out.keys()
    studied(tiny())  # the page is that of the first again, for the other tests


def test_computed_anew_it_has_the_same_digest(run: StudyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    again = studied(tiny())
    assert again.computed > 5 and again.digest == run.digest


def test_a_policy_is_named_by_its_digest_its_beginning_or_its_folder(run: StudyRun, tmp_path: Path) -> None:
    warm_start = prepare_policy(tiny(), prepare_materials(tiny())).warm_start
    for name in (warm_start.digest, warm_start.digest[:12], str(warm_start)):
        assert find_policy(name) == warm_start
    assert studied(tiny(), warm_start.digest).digest == run.digest
    folder = tmp_path / "policy"
    shutil.copytree(default_store().folder(warm_start), folder)
    copied = find_policy(str(folder))
    assert (default_store().folder(copied) / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()
    assert studied(tiny(), str(folder)).study == run.study


@pytest.mark.parametrize("name", ["no-such-policy", "g" * 32, "0123456789abcdef"])
def test_a_policy_that_is_not_there_is_refused(run: StudyRun, name: str) -> None:
    with pytest.raises(ConfigurationError, match="TW-unknown-policy"):
        find_policy(name)


def test_a_folder_without_weights_is_no_policy(run: StudyRun, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="TW-incomplete-policy"):
        find_policy(str(tmp_path))


def test_a_policy_of_another_tokenizer_is_refused_before_it_plays(run: StudyRun) -> None:
    warm_start = prepare_policy(tiny(), prepare_materials(tiny())).warm_start
    with pytest.raises(ConfigurationError, match="TW-foreign-tokenizer"):
        studied(tiny(**{"policy.vocabulary": 400, "data.demonstrations": 32}), warm_start.digest)


@pytest.mark.parametrize(
    ("tasks", "replays", "message"),
    [(1, 3, "--tasks must be from 2"), (7, 3, "validation_tasks, 6"), (4, 1, "--replays must be at least 2")],
)
def test_numbers_that_cannot_be_studied_are_refused(
    tasks: int, replays: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=message):
        study_credit.fn(tiny(), None, tasks, replays, quiet=True)
    assert not (tmp_path / "store").exists()


RULES_OF_RUNS = {
    "outcome": {"estimator": "grpo", "options": {"rewards": "outcome"}},
    "merged": {"estimator": "grpo", "options": {"rewards": "merged"}},
    "rloo": {"estimator": "rloo", "options": {"rewards": "merged"}},
    "critic": {"estimator": "turn-gae"},
    "own": {"estimator": "grpo", "options": {"deviation": "none"}},
}


def trained(**settings: object) -> Experiment:
    """Five rules, two seeds, one iteration."""
    variants = {name: {"credit": credit} for name, credit in RULES_OF_RUNS.items()}
    several: dict[str, object] = {
        "ablation.variants": list(variants),
        "ablation.seeds": [1, 2],
        "ablation.name": "five",
    }
    return tiny(**{"optimization.iterations": 1, "variants": variants, **several, **settings})


@pytest.fixture(scope="module")
def recorded(run: StudyRun) -> list[RecordedRun]:
    """The runs of that ablation, which are recorded beside the study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "results_folder", lambda _: run.folder.parent / "five")
        patch.setattr(report_files, "_draw_files", lambda _: {report_files.PAGE_FILE: b"This page was not drawn."})
        ablation.comparison(trained(), None, quiet=True)
    return list(tw.runs("five"))


def test_closeness_is_held_against_the_success_of_recorded_runs(recorded: list[RecordedRun]) -> None:
    found = study_credit(trained(), None, TASKS, REPLAYS, ["five"], quiet=True)
    by_tokens, by_seconds = found.success
    titles = [(each.variant, each.rule.title) for each in by_tokens.trained]
    assert titles == [
        ("outcome", "grpo, outcome"),
        ("merged", "grpo, merged"),
        ("rloo", "rloo, merged"),
        ("critic", "turn-gae"),
        ("own", "variant own"),
    ]
    assert by_tokens.budget.endswith(" sampled tokens") and by_tokens.without == ()
    # Each run's success, at the tokens that the least of them has sampled, is between that of its two evaluations.
    world = trained().made_world
    ends = {
        (made.variant, made.seed): [
            cell(each, world, world.primary_column) for each in (made.start, made.iterations[0]["evaluation"])
        ]
        for made in (one.artifacts for one in recorded)
    }
    for each in by_tokens.trained:
        assert len(each.success.sample) == 2
        for seed, value in enumerate(each.success.sample, start=1):
            low, high = sorted(end or 0.0 for end in ends[each.variant, seed])
            assert low - 1e-9 <= value <= high + 1e-9
    assert {prediction.rules for prediction in by_tokens.predictions} <= {4, 5}
    with (found.folder / "success.csv").open() as file:
        assert [row["variant"] for row in csv.DictReader(file)] == list(RULES_OF_RUNS)
    assert (found.folder / "success.png").read_bytes().startswith(b"\x89PNG")
    assert by_seconds.axis == "seconds" and (found.folder / "success-seconds.csv").is_file()
    page = (found.folder / "README.md").read_text()
    assert "](success.png)" in page and "](success-seconds.png)" in page and "| runs | five |" in page
    without = studied(tiny())
    assert not list(without.folder.glob("success*"))


def test_runs_that_differ_in_more_than_their_rules_are_refused_before_anything_is_played(
    recorded: list[RecordedRun],
) -> None:
    with pytest.raises(ConfigurationError, match="another section rollout: give the files"):
        study_credit(trained(**{"rollout.prompts": 4}), None, TASKS, REPLAYS, ["five"], quiet=True)
    with pytest.raises(ConfigurationError, match="does not judge that of own"):
        study_credit(tiny(**{"optimization.iterations": 1}), None, TASKS, REPLAYS, ["five"], quiet=True)
