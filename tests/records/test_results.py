"""What `results/<name>` holds is of one ablation, and says whether it repeats what was there before."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from turnwise.experiment import load
from turnwise.records.results import DIGESTS_FILE, compared_with_former

ROOT = Path(__file__).parents[2]

AVX2, AVX512 = ({"processor": {"vendor": "v", "flags": flags}} for flags in (["avx2"], ["avx2", "avx512f"]))


def digests(digest: str, parameters: str = "p", platform: Any = AVX2) -> dict[str, Any]:
    return {"all": digest, "made": {"parameters": parameters, "code": "c", "platform": platform}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of an ablation in a project that is in Git and has no results yet."""
    (tmp_path / "params.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    git("init")
    folder = tmp_path / "results" / "credit"
    folder.mkdir(parents=True)
    return folder


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def lay_down(folder: Path, former: dict[str, Any]) -> None:
    (folder / DIGESTS_FILE).write_text(json.dumps(former))


def test_the_first_results_repeat_nothing(folder: Path) -> None:
    assert compared_with_former(folder, digests("new")) == ""


def test_the_same_digest_is_said_to_be_the_same_on_any_platform(folder: Path) -> None:
    lay_down(folder, digests("same", platform=AVX512))
    assert compared_with_former(folder, digests("same")) == "the digests that digests.json had"


def test_results_of_other_parameters_are_nothing_to_repeat(folder: Path) -> None:
    lay_down(folder, digests("old", parameters="others"))
    assert compared_with_former(folder, digests("new")) == ""


def test_what_differs_on_another_processor_is_said_to(folder: Path) -> None:
    lay_down(folder, digests("old", platform=AVX512))
    assert compared_with_former(folder, digests("new")) == (
        "other digests than digests.json had: made on a processor with avx512f; this one has none: figures may differ "
        "in the second decimal"
    )


def test_what_does_not_say_how_it_was_made_may_be_the_same_experiment_elsewhere(folder: Path) -> None:
    lay_down(folder, {"all": "old"})
    assert "parameters, code, platform unknown" in compared_with_former(folder, digests("new"))


def test_results_that_dvc_has_removed_are_compared_with_the_committed_ones(folder: Path) -> None:
    lay_down(folder, digests("old"))
    git("add", ".")
    git("commit", "-m", "results")
    (folder / DIGESTS_FILE).unlink()
    assert compared_with_former(folder, digests("new")).endswith(
        "nothing explains it: parameters, code and platform are the same"
    )
    folder.rmdir()
    assert compared_with_former(folder, digests("old")) == "the digests that digests.json had"


def test_results_in_between_of_other_parameters_hide_nothing(folder: Path) -> None:
    lay_down(folder, digests("old", platform=AVX512))
    git("add", ".")
    git("commit", "-m", "results")
    lay_down(folder, digests("tried", parameters="others"))
    assert "avx512f" in compared_with_former(folder, digests("new"))


@pytest.mark.parametrize("damaged", ["", "<<<<<<< HEAD\n"])
def test_digests_that_cannot_be_read_hide_the_committed_ones_no_more_than_missing_ones(
    folder: Path, damaged: str
) -> None:
    lay_down(folder, digests("same"))
    git("add", ".")
    git("commit", "-m", "results")
    (folder / DIGESTS_FILE).write_text(damaged)
    assert compared_with_former(folder, digests("same")) == "the digests that digests.json had"


def test_the_recorded_default_experiment_has_every_run_and_every_iteration_of_params_yaml() -> None:
    experiment, recorded = load(ROOT / "params.yaml"), ROOT / "results" / "credit"
    variants, seeds = experiment.ablation.variants, experiment.ablation.all_seeds
    runs = json.loads((recorded / DIGESTS_FILE).read_text(encoding="utf-8"))["runs"]
    assert set(runs) == {f"{variant} seed {seed}" for variant in variants for seed in seeds}
    with (recorded / "curves.csv").open(encoding="utf-8", newline="") as file:
        assert max(int(row["iteration"]) for row in csv.DictReader(file)) == experiment.optimization.iterations
