"""What `turnwise reproduce` does: run a recorded run again, with its code and parameters, and compare the artifacts.

The code goes into a fresh folder, a clone at the run's commit with its uncommitted diff applied, and its results into a
store of their own there. The installed packages are those of this environment: where they differ from then, the report
of the first difference says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from ruamel.yaml import YAML

from turnwise.config.overlays import read_yaml
from turnwise.data.metrics import task_means
from turnwise.data.trajectory_files import SAMPLED, read_trajectories
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.reporting.formatting import signed
from turnwise.results.cells import cell
from turnwise.statistics.interval import mean
from turnwise.statistics.repeats import Repeat, compare_repeats
from turnwise.statistics.until_decided import WORTH_OF_SHARES
from turnwise.store import Store, default_store
from turnwise.store.default import URL_VARIABLE
from turnwise.store.digests import digest_of
from turnwise.store.sqlite_files import sqlite_address
from turnwise.store.withheld import left_out_of
from turnwise.tracking.finding import RecordedRun, find_runs
from turnwise.tracking.reproduction import UNEXPLAINED, differing_ingredients, first_difference, steps, why_different

OF_THE_OUTER_RUN = ("DVC_ROOT", "TURNWISE_HOME", URL_VARIABLE)
"""Environment variables that would make the reproduced run use the outer project's folders, or find its results."""

NONE = "none"
"""In place of a commit or a digest: the run recorded none."""


def require_checkout(repository: Path, folder: Path, commit: str, uncommitted: str, diff: str | None) -> None:
    """Raise ConfigurationError, before anything is written, unless the code can be restored exactly.

    Args:
        repository: the repository that the run was made in.
        folder: the folder for the code, which must not exist yet.
        commit: the commit that was checked out then.
        uncommitted: the digest of the diff from that commit, or "none".
        diff: the recorded diff; None where none was recorded.
    """
    if folder.exists():
        raise ConfigurationError(
            f"a run is reproduced in a fresh folder; {folder} exists: name another, or remove it", "TW-would-overwrite"
        )
    if commit == NONE:
        raise ConfigurationError(
            "a run can be reproduced when it was made in a Git repository; this one recorded no commit: commit the "
            "project, and run it again",
            "TW-unrecorded-code",
        )
    if _git(repository, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
        raise ConfigurationError(
            f"the run's commit must be in the repository {repository}; {commit} is not: fetch the branch that holds it",
            "TW-missing-commit",
        )
    digest = digest_of(diff) if diff else NONE
    if diff and (left_out := left_out_of(diff)):
        raise ConfigurationError(
            "a run can be reproduced when all of its code is recorded; of its uncommitted changes was left out: "
            f"{left_out}. Check the commit {commit[:12]} out, add what is missing, and run the parameters of its "
            "artifacts.json; commit the code before the next run",
            "TW-unrecorded-code",
        )
    if digest != uncommitted:
        raise ConfigurationError(
            f"the recorded diff must be the one that the run was made with, {uncommitted}; it is {digest}: the run's "
            "artifacts in MLflow are damaged or missing",
            "TW-damaged-record",
        )


def check_out(repository: Path, folder: Path, commit: str, diff: str | None) -> None:
    """Write the run's code into the folder. Raises ConfigurationError if a Git command fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _require(_git(repository, "clone", "--quiet", "--no-checkout", str(repository), str(folder)))
    _require(_git(folder, "checkout", "--quiet", "--detach", commit))
    if diff:
        _require(_git(folder, "apply", "--whitespace=nowarn", "-", text=diff))


def _git(folder: Path, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[bytes]:
    standard_input = None if text is None else text.encode("utf-8", "surrogateescape")
    return subprocess.run(["git", *arguments], cwd=folder, input=standard_input, capture_output=True, check=False)


def _require(answer: subprocess.CompletedProcess[bytes]) -> None:
    if answer.returncode:
        output = answer.stderr.decode("utf-8", "replace").strip()
        raise ConfigurationError(
            f"git must check the run's code out; {' '.join(answer.args)} answered: {output}", "TW-git-failed"
        )


def one_state(runs: Sequence[RecordedRun]) -> tuple[str, str]:
    """The commit and the diff's digest that the runs share. Raises ConfigurationError if they share none."""
    states = {(run.tags.get("commit", "none"), run.tags.get("uncommitted", "none")): run.name for run in runs}
    if len(states) > 1:
        listing = "; ".join(f"{name}: {commit[:12]} {diff[:12]}" for (commit, diff), name in states.items())
        raise ConfigurationError(
            f"runs are reproduced together when one code made them; found {listing}: name one run", "TW-several-commits"
        )
    return next(iter(states))


def repeat(run: RecordedRun, folder: Path, settings: Sequence[str] = ()) -> RecordedRun:
    """Run one run again in the folder of its code, with its parameters but for `settings`, such as another engine."""
    parameters = _write_parameters(run, folder)
    artifacts = run.artifacts
    command = [sys.executable, "-m", "flows.commands.cli", "experiment", "--parameters", parameters]
    command += ["--variant", artifacts.variant, "--seed", str(artifacts.seed)]
    command += [part for setting in settings for part in ("-s", setting)]
    ended = subprocess.run(command, cwd=folder, env=_environment(folder), check=False)
    if ended.returncode:
        raise TurnwiseError(
            f"the run must end to be compared; {' '.join(command)} ended with {ended.returncode}",
            "TW-reproduction-failed",
        )
    (repetition,) = find_runs(sqlite_address(folder / ".turnwise" / "mlflow.db"), run.name)
    return repetition


def store_of(folder: Path) -> Store:
    """The store of the runs that were made again in a folder."""
    return Store(folder / ".turnwise" / "store")


def margin_of(runs: Sequence[RecordedRun], margin: float | None) -> float:
    """The margin that results are held to: as it is given, or what is worth having between shares.

    Raises ConfigurationError where the metric is no share and none is given.
    """
    column = runs[0].artifacts.world.primary_column
    if margin is not None:
        return margin
    if not column.percent:
        raise ConfigurationError(
            f"a margin must be given where results are no shares; {column.heading} is none: --margin says which "
            "difference would not matter",
            "TW-missing-option",
        )
    return WORTH_OF_SHARES


def answer(
    variant: str,
    repetitions: Mapping[int, tuple[RecordedRun, bool]],
    recorded: Mapping[int, RecordedRun],
    elsewhere: Store,
    margin: float,
) -> tuple[bool, str]:
    """Whether the repetition of one variant gives the same bits or results within the margin, and the answer in words.

    `repetitions` has by seed each run that was made again, and whether it has the same bits; `recorded` all runs of the
    variant that were recorded, which show how results vary with the seed.
    """
    if all(same for _, same in repetitions.values()):
        return True, f"{variant}: the same bits"
    if untested := [seed for seed, (run, _) in repetitions.items() if run.artifacts.test is None]:
        return False, f"{variant}: differs: seed {untested[0]} was tested then, and now is not"
    world = next(iter(recorded.values())).artifacts.world
    column = world.primary_column
    before = {
        seed: value
        for seed, run in recorded.items()
        if run.artifacts.test is not None and (value := cell(run.artifacts.test, world, column)) is not None
    }
    now = {
        seed: mean(values)
        for seed, (run, _) in repetitions.items()
        if run.artifacts.test is not None
        and (values := task_means(read_trajectories(elsewhere.folder(run.artifacts.test) / SAMPLED), column).values())
    }
    if not now or not now.keys() <= before.keys():
        return False, f"{variant}: undecided: not every run has a value of {column.heading} on the test task set"
    comparison = compare_repeats(before, now, margin)
    return comparison.answer == "within the margin", f"{variant}: {_in_words(comparison, column.heading)}"


def _in_words(comparison: Repeat, measure: str) -> str:
    difference = comparison.difference
    seeds = f"{difference.count} seed{'' if difference.count == 1 else 's'}"
    level = f"{100 * difference.level:.0f} % interval"
    interval = (
        ""
        if difference.low is None or difference.high is None
        else f" ({level} {signed(difference.low, 3)} to {signed(difference.high, 3)})"
    )
    difference_text = f"{measure} {signed(difference.value, 3)}{interval} over {seeds}"
    text = f"{comparison.answer}: {difference_text}; the margin is {comparison.margin:g}"
    if comparison.answer != "undecided":
        return text
    if difference.low is None:
        return f"{text}; nothing shows how runs vary: record further seeds, and reproduce the ablation"
    if comparison.further is None:
        return f"{text}; a thousand seeds would not decide it: take a wider margin or more test tasks"
    return f"{text}; repeating {comparison.further} more would decide it four times in five if nothing differs"


def equal(run: RecordedRun, repetition: RecordedRun, elsewhere: Store, console: Console) -> bool:
    """Whether a run and its repetition have the same artifacts; prints that, or where and why they first differ.

    `elsewhere` is the store of the repetition; the original run's is the current home's.
    """
    pairs = steps(run.artifacts, repetition.artifacts)
    different = first_difference(pairs)
    if different is None:
        console.print(f"{run.name}: equal, all {len(pairs)} artifacts to the bit, from the task sets to the test")
        return True
    place = pairs.index(different)
    console.print(
        f"{run.name}: the first {place} artifacts are equal; the first that differs is {different.name}: recorded as "
        f"{different.recorded}, now {different.again}"
    )
    if different.recorded is not None and different.again is not None:
        before = default_store().lineage(different.recorded)
        after = elsewhere.lineage(different.again)
        for one, other in zip(list(before.values())[:1], list(after.values())[:1], strict=True):
            ingredients = differing_ingredients(one, other)
            console.print(f"    made from other {', '.join(ingredients)}" if ingredients else f"    {UNEXPLAINED}")
            if one.get("platform") != other.get("platform"):
                console.print(f"    {why_different(one, other)}")
    return False


def _write_parameters(run: RecordedRun, folder: Path) -> str:
    """Write the run's parameters to a file in the folder; sections that were not recorded come from its params.yaml."""
    artifacts = run.artifacts
    project = read_yaml(folder / "params.yaml")
    values = {
        **project,
        **artifacts.experiment,
        "ablation": {
            **project["ablation"],
            "name": "reproduced",
            "seeds": [artifacts.seed],
            "variants": [artifacts.variant],
        },
        "variants": {artifacts.variant: {}},
        "tracking": {**project["tracking"], "uri": ""},
        # What it is to compute again must not be found in a shared store.
        "storage": {**project["storage"], "url": ""},
    }
    name = f"reproduced-{artifacts.variant}-{artifacts.seed}.yaml"
    with (folder / name).open("w", encoding="utf-8") as file:
        YAML().dump(values, file)
    return name


def _environment(folder: Path) -> dict[str, str]:
    """The environment of the repetition: that of this process, without variables that name other folders."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_THE_OUTER_RUN}
    return {**environment, "PYTHONPATH": str(folder)}
