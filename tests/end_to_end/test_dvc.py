"""DVC, with the real tool: `dvc repro` from a fresh clone makes what `turnwise ablation` makes, and no more."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from comparison import Computed
from playwright.sync_api import sync_playwright
from project_copy import ROOT, asked_outside, commit_all, copy_home, copy_project, git, guarded, run
from ruamel.yaml import YAML

from envs.browser.chromium import find_chromium
from flows.dvc.fingerprints import WRITERS, calls_by_stage
from flows.plan import plan_ablation
from turnwise.config.overlays import read_yaml
from turnwise.config.schema import BESIDE_RESULTS
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.store import MANIFEST, Manifest
from turnwise.world import SPLITS

pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("prefect_server")]

STAGES = ("prepare", "warm_start", "train@grpo-or-1", "train@mt-grpo-1", "report")
CHANGE = "+variants.mt-grpo.credit.options.epsilon=0.5"


@dataclass(frozen=True)
class Reproduction:
    """A clone in which `dvc repro` ran, and one in which `turnwise ablation` ran, each with a home of its own."""

    clone: Path
    said: str
    reference: Path


@pytest.fixture(scope="module")
def reproduction(tiny_ablation: Computed, tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    folder = tmp_path_factory.mktemp("dvc")
    clone, reference = copy_project(folder / "clone", drawn=False), copy_project(folder / "reference")
    said = run(clone, "dvc", "repro", **guarded(clone))
    commit_all(clone)
    copy_home(tiny_ablation.home, reference / ".turnwise")
    shutil.copytree(tiny_ablation.results, reference / "results" / "tiny")
    return Reproduction(clone, said, reference)


@pytest.fixture(scope="module")
def experiment(reproduction: Reproduction) -> str:
    """What `dvc exp run --temp` says that changes one variant."""
    return run(reproduction.clone, "dvc", "exp", "run", "--temp", "--name", "half", "--set-param", CHANGE)


def read_json(path: Path) -> dict:
    return json.loads(path.read_text())


def stages_run(said: str) -> list[str]:
    return [stage for stage in STAGES if f"Running stage '{stage}'" in said]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that DVC or Git tracks of the results, by name."""
    untracked = git(folder, "ls-files", "--others", "--ignored", "--exclude-standard", "results").splitlines()
    paths = [path for top in ("data", "models", "runs", "results") for path in (folder / top).rglob("*")]
    names = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    return {name: names[name].read_bytes() for name in sorted(set(names) - set(untracked))}


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """This process in a copy, with the copy's home."""
    before = os.environ.get("TURNWISE_HOME")
    os.environ["TURNWISE_HOME"] = str(folder / ".turnwise")
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop("TURNWISE_HOME")
        if before is not None:
            os.environ["TURNWISE_HOME"] = before


def test_a_fresh_clone_gives_the_digests_of_the_ablation(reproduction: Reproduction) -> None:
    assert stages_run(reproduction.said) == list(STAGES)
    for name in ("digests.json", "table.csv"):
        tracked, expected = (
            place / "results" / "tiny" / name for place in (reproduction.clone, reproduction.reference)
        )
        assert tracked.read_bytes() == expected.read_bytes()
    of_ablation = read_json(reproduction.clone / "results" / "tiny" / "digests.json")["runs"]["mt-grpo seed 1"]
    of_run = read_json(reproduction.clone / "runs" / "mt-grpo" / "1" / "digests.json")
    assert len(of_run["iterations"]) == 2
    assert {"policy": of_run["iterations"][-1]["policy"], "test": of_run["test"]} == of_ablation


def test_nobody_outside_this_machine_was_asked(reproduction: Reproduction) -> None:
    assert asked_outside(reproduction.clone) == ""


def test_what_dvc_tracks_is_the_same_in_every_home(reproduction: Reproduction) -> None:
    # The ablation has left its results in the reference's store: the stages only take them out.
    from flows.dvc.stages import materialise

    with working_in(reproduction.reference):
        tiny = load(Path("params.yaml"))
        for stage in ("prepare", "warm_start", "report"):
            materialise(stage, tiny)
        for variant in tiny.ablation.variants:
            materialise("train", tiny, variant, 1)
    tracked = contents(reproduction.clone)
    assert {"data/baselines.json", "models/warm_start/model.safetensors", "runs/grpo-or/1/training.csv"} <= set(tracked)
    assert "results/tiny/report.html" not in tracked, "it tells the time"
    assert tracked == contents(reproduction.reference)


def test_again_does_nothing(reproduction: Reproduction) -> None:
    said = run(reproduction.clone, "dvc", "repro")
    assert all(f"Stage '{stage}' didn't change, skipping" in said for stage in STAGES)
    assert git(reproduction.clone, "status", "--porcelain") == "", "and leaves no file behind that Git would see"


@pytest.mark.parametrize(
    ("file", "edit", "runs"),
    [
        ("turnwise/credit/group_relative.py", "# said otherwise\n", []),
        ("turnwise/results/report.py", "CHANGED = 1\n", ["report"]),
        ("turnwise/credit/reinforce.py", "CHANGED = 1\n", ["train@grpo-or-1", "train@mt-grpo-1"]),
    ],
)
def test_an_edit_concerns_the_stages_whose_results_depend_on_it(
    reproduction: Reproduction, file: str, edit: str, runs: list[str]
) -> None:
    edited = reproduction.clone / file
    try:
        edited.write_text(edited.read_text() + edit)
        run(reproduction.clone, "dvc", "repro", "--single-item", "fingerprints")
        changed = json.loads(run(reproduction.clone, "dvc", "status", "--json", *STAGES).splitlines()[-1])
    finally:
        git(reproduction.clone, "reset", "--hard", "--quiet")
    assert list(changed) == runs


def test_the_policies_are_complete_folders_for_transformers(reproduction: Reproduction) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    digests = set()
    for folder in ("models/warm_start", "runs/grpo-or/1/policy", "runs/mt-grpo/1/policy"):
        model = AutoModelForCausalLM.from_pretrained(reproduction.clone / folder)
        tokenizer = AutoTokenizer.from_pretrained(reproduction.clone / folder)
        tokens = tokenizer.apply_chat_template([{"role": "user", "content": "P _ G"}], return_tensors="pt")
        assert model(**tokens).logits.shape[-1] == len(tokenizer)
        digests.add((reproduction.clone / folder / "model.safetensors").read_bytes())
    assert len(digests) == 3, "both variants have learned, each something else"


def test_the_data_can_be_checked_against_the_digests(reproduction: Reproduction) -> None:
    digests = read_json(reproduction.clone / "results" / "tiny" / "digests.json")
    folders = {f"{split} task set": f"task_sets/{split}" for split in SPLITS}
    for name, place in {**folders, "demonstrations": "demonstrations", "tokenizer": "tokenizer"}.items():
        folder = reproduction.clone / "data" / place
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        assert manifest.reference.digest == digests[name]
        assert set(manifest.files) | {MANIFEST} == {path.name for path in folder.iterdir()}


def test_the_metrics_fit_a_screen_of_80_columns(reproduction: Reproduction) -> None:
    (workspace,) = json.loads(run(reproduction.clone, "dvc", "metrics", "show", "--json")).values()
    shown = {Path(path).stem: each["data"] for path, each in workspace["data"].items()}
    assert set(shown) == {"grpo-or", "mt-grpo", "warm-start", "random", "oracle"}
    tested = read_json(reproduction.clone / "runs" / "mt-grpo" / "1" / "metrics.json")["test"]
    assert shown["mt-grpo"] == {"success": tested["sampled"]["success"], "greedy": tested["greedy"]["success"]}
    assert shown["oracle"]["success"] > shown["random"]["success"]
    table = run(reproduction.clone, "dvc", "metrics", "show").splitlines()
    assert len(table) == 6 and max(map(len, table)) <= 80
    training = (reproduction.clone / "runs" / "mt-grpo" / "1" / "training.csv").read_text().splitlines()
    assert len(training) == 3 and all(all(row.split(",")) for row in training), "a number in each cell"


@pytest.mark.needs("chromium")
def test_the_plots_are_a_page_that_opens_offline(reproduction: Reproduction) -> None:
    folder = reproduction.clone.parent / "plots"
    run(reproduction.clone, "dvc", "plots", "show", "--out", str(folder))
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 420, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / "index.html").as_uri())
        for title in ("warm start", "grpo-or seed 1: validation success", "mt-grpo seed 1: reward in training"):
            plot = page.locator("div", has=page.get_by_role("heading", name=title))
            assert plot.locator("polyline").count() == 1, title
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        browser.close()
    assert asked == [(folder / "index.html").as_uri()], "it loads nothing else"


def test_another_clone_pulls_from_a_remote_what_was_pushed(reproduction: Reproduction) -> None:
    clone, folder = reproduction.clone, reproduction.clone.parent
    run(clone, "dvc", "remote", "add", "--default", "--local", "shared", str(folder / "remote"))
    run(clone, "dvc", "push")
    other = folder / "other"
    git(clone, "clone", "--quiet", str(clone), str(other))
    (other / ".venv").symlink_to(sys.prefix)
    run(other, "dvc", "remote", "add", "--default", "--local", "shared", str(folder / "remote"))
    assert not (other / "models" / "warm_start").exists(), "Git has it not"
    run(other, "dvc", "pull")
    assert contents(other) == contents(clone)
    said = run(other, "dvc", "repro")
    assert all(f"Stage '{stage}' didn't change, skipping" in said for stage in STAGES)


def test_a_change_of_one_variant_runs_that_variant_only_with_the_same_store(
    reproduction: Reproduction, experiment: str
) -> None:
    assert stages_run(experiment) == ["train@mt-grpo-1", "report"]
    found = re.search(r"(\d+) found in the store", experiment)
    assert found is not None and int(found[1]) >= 7, "the copy in the temporary folder shares the preparation"
    assert git(reproduction.clone, "status", "--porcelain") == "", "the workspace is left alone"


def test_the_difference_of_two_experiments_names_what_changed_and_no_more(
    reproduction: Reproduction, experiment: str
) -> None:
    table = run(reproduction.clone, "dvc", "metrics", "diff", "HEAD", "half").splitlines()
    assert all("mt-grpo.json" in line for line in table[1:]) and max(map(len, table), default=0) <= 100
    same = run(reproduction.clone, "dvc", "metrics", "diff", "HEAD", "HEAD")
    assert same == ""
    changed = run(reproduction.clone, "dvc", "params", "diff", "HEAD", "half").splitlines()
    assert len(changed) == 2 and changed[1].split()[-3:] == ["variants.mt-grpo.credit.options.epsilon", "-", "0.5"]
    run(reproduction.clone, "dvc", "plots", "diff", "HEAD", "half", "--out", "both")
    page = (reproduction.clone / "both" / "index.html").read_text()
    shutil.rmtree(reproduction.clone / "both")
    assert "half" in page and "mt-grpo seed 1: validation success" in page


def test_a_policy_leaves_by_its_name(reproduction: Reproduction, tmp_path: Path) -> None:
    for name, folder in (("warm-start", "models/warm_start"), ("mt-grpo", "runs/mt-grpo/1/policy")):
        git(reproduction.clone, "tag", "--annotate", "--message", "the first", f"{name}@v1.0.0")
        run(tmp_path, "dvc", "artifacts", "get", str(reproduction.clone), name, "--out", name)
        left = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        assert left == {path.name: path.read_bytes() for path in (reproduction.clone / folder).iterdir()}


def test_the_graph_of_the_report_is_that_of_this_experiment(reproduction: Reproduction) -> None:
    drawn = run(reproduction.clone, "dvc", "dag", "--mermaid", "report")
    assert set(re.findall(r'\["(.+?)"\]', drawn)) == {*STAGES, "fingerprints"}


@pytest.fixture
def workspace(reproduction: Reproduction) -> Iterator[Path]:
    """The clone, whose parameters and results are put back as they were."""
    yield reproduction.clone
    git(reproduction.clone, "reset", "--hard", "--quiet")
    run(reproduction.clone, "dvc", "checkout", "--force")


@pytest.mark.usefixtures("workspace")
def test_an_experiment_can_be_repeated_in_the_workspace(reproduction: Reproduction, experiment: str) -> None:
    before = read_json(reproduction.clone / "results" / "tiny" / "digests.json")
    said = run(reproduction.clone, "dvc", "exp", "run", "--name", "again", "--set-param", CHANGE)
    assert stages_run(said) == ["train@mt-grpo-1", "report"]
    assert "0 stages computed" in said, "the store has them from the temporary folder"
    listed = git(reproduction.clone, "for-each-ref", "--format=%(refname:lstrip=-1) %(objectname)", "refs/exps")
    commits = dict(line.split() for line in listed.splitlines())
    assert git(reproduction.clone, "diff", "--stat", commits["again"], commits["half"]) == ""
    after = read_json(reproduction.clone / "results" / "tiny" / "digests.json")
    assert after["runs"]["grpo-or seed 1"] == before["runs"]["grpo-or seed 1"]
    assert after["runs"]["mt-grpo seed 1"] != before["runs"]["mt-grpo seed 1"]


def test_every_comparison_has_one_complete_record(reproduction: Reproduction, experiment: str) -> None:
    # MLflow's database: a parent for the first comparison and one for the changed one, each with two children.
    with contextlib.closing(sqlite3.connect(reproduction.clone / ".turnwise" / "mlflow.db")) as database:
        states = database.execute("select status from runs where lifecycle_stage = 'active'").fetchall()
        parents = database.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
    assert states == [("FINISHED",)] * 6
    assert sorted(parents.count(parent) for parent in set(parents)) == [2, 2]


def test_the_stages_track_every_parameter() -> None:
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    sections = set(Experiment.model_fields) - BESIDE_RESULTS
    assert set(stages["report"]["params"]) == sections, "where to record changes no result"
    through_outs = {"data", "policy", "warm_start", "ablation"}
    assert set(stages["train"]["params"]) == sections - through_outs - {"variants"} | {"variants.${item.variant}"}
    values = read_yaml(ROOT / "params.yaml")
    for stage in ("prepare", "warm_start"):
        for key in stages[stage]["params"]:
            section, _, name = key.partition(".")
            assert section in values and (not name or name in values[section]), key


def test_the_fingerprints_have_the_functions_that_write_each_stages_files() -> None:
    from flows.dvc import stages

    assert all(callable(getattr(stages, name)) for name in WRITERS.values())
    read = {path: json.loads(path.read_text())["files"] for path in (ROOT / "fingerprints").rglob("*.json")}
    assert len(set(read.values())) == len(WRITERS), "one for each function"


def test_the_fingerprints_are_those_of_every_call_of_an_ablation() -> None:
    tiny = load(ROOT / "tests" / "parameters.yaml")
    planned = {(each.stage, each.label) for each in plan_ablation(tiny, looks=False).stages}
    calls = [call for made in calls_by_stage(tiny).values() for call in made]
    first = {(stage, label) for stage, label in planned if not re.search(r"seed (?!1\b)", label)}
    assert {(call.stage, call.label) for call in calls} == first


@pytest.mark.parametrize(
    ("stage", "variant", "seed", "message"),
    [
        ("train", None, None, "takes --variant and --seed"),
        ("report", "grpo-or", None, "takes --variant and --seed"),
        ("train", "unknown", 1, "must be part of the ablation"),
        ("train", "grpo-or", 99, "must be part of the ablation"),
    ],
)
def test_what_is_no_stage_of_the_ablation_is_refused(
    stage: str, variant: str | None, seed: int | None, message: str
) -> None:
    from flows.dvc.stages import materialise

    with pytest.raises(ConfigurationError, match=message):
        materialise(stage, load(ROOT / "params.yaml"), variant, seed)
