"""`turnwise verify`: finds whatever is damaged in a home, says what mends it, and is content with what is only odd."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel
from rich.console import Console

from flows.commands.store import inspect, print_parts
from tasks.caching import cache_key, depends_on
from tasks.orchestration.deferred import task
from turnwise import progress
from turnwise.project import home
from turnwise.store import Reference, default_store
from turnwise.store.stage_records import records_folder

PARTS = ["artifacts", "clocks and lineage", "records", "Prefect's database", "MLflow's database"]


class Parameters(BaseModel):
    value: float = 1.0


@task(name="plums", task_run_name="{label}: plums", retries=1)
@depends_on()
def plums(parameters: Parameters, *, label: str = "plums") -> Reference:
    """A stage."""
    with default_store().write("plum") as draft:
        (draft.folder / "weights.bin").write_bytes(b"\x00" * 5000)
        (draft.folder / "optimizer.bin").write_bytes(b"\x01" * 5000)
        draft.metrics["value"] = parameters.value
    return draft.reference


def write_database(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("create table runs (name text)")
        connection.executemany("insert into runs values (?)", [(f"run {number}" * 50,) for number in range(500)])
    connection.close()


@pytest.fixture
def reference(prefect_server: str, turnwise_home: Path) -> Reference:
    """A home with two artifacts, their records, and both databases."""
    plums(Parameters(value=2.0))
    write_database(home() / "prefect" / "prefect.db")
    write_database(home() / "mlflow.db")
    return plums(Parameters())


def damaged() -> dict[str, int]:
    return {part.part: len(part.damaged) for part in inspect(home()) if part.damaged}


def printed() -> str:
    console = Console(file=io.StringIO(), width=100)
    print_parts(inspect(home()), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def folder_of(reference: Reference) -> Path:
    return home() / "store" / reference.kind / reference.digest


def files() -> dict[Path, int]:
    """When each file of the home was written, the store's index apart."""
    found = [path for path in home().rglob("*") if path.is_file() and ".verified" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in found}


def test_an_intact_home_is_counted_and_nothing_is_changed(reference: Reference) -> None:
    before = files()
    parts = inspect(home())
    assert [part.part for part in parts] == PARTS
    assert [part.checked for part in parts] == [2, 4, 2, 1, 1]
    assert damaged() == {} and [part.left_over for part in parts] == [[]] * 5
    assert files() == before


def test_an_empty_home_is_intact(turnwise_home: Path) -> None:
    assert damaged() == {} and [part.checked for part in inspect(home())] == [0] * 5


def test_what_was_pruned_is_no_damage(reference: Reference) -> None:
    assert default_store().prune(reference, ["optimizer*"]) == 5000
    assert damaged() == {}
    shutil.rmtree(home() / "store" / ".verified")
    assert damaged() == {}
    (folder_of(reference) / "weights.bin").unlink()
    assert damaged() == {"artifacts": 1}


def flip_without_a_trace(reference: Reference) -> None:
    path = folder_of(reference) / "weights.bin"
    at = path.stat()
    with path.open("r+b") as file:
        file.write(b"\x07")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))


def cut_manifest(reference: Reference) -> None:
    path = folder_of(reference) / "manifest.json"
    path.write_bytes(path.read_bytes()[:40])


def put_a_stranger(reference: Reference) -> None:
    (folder_of(reference).parent / "notes.txt").write_text("mine")


def cut_clock(reference: Reference) -> None:
    folder_of(reference).with_name(f"{reference.digest}.clock.json").write_text('{"seconds": 1')


def cut_lineage(reference: Reference) -> None:
    (path,) = folder_of(reference).with_name(f"{reference.digest}.lineage").iterdir()
    path.write_text("")


def exchange_records(reference: Reference) -> None:
    one, other = (records_folder() / cache_key(plums, Parameters(value=value)) for value in (1.0, 2.0))
    other.write_bytes(one.read_bytes())


def cut_record(reference: Reference) -> None:
    path = records_folder() / cache_key(plums, Parameters())
    path.write_bytes(path.read_bytes()[:30])


def remove_artifact(reference: Reference) -> None:
    shutil.rmtree(folder_of(reference))


def overwrite_a_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)


def spoil_prefect(reference: Reference) -> None:
    overwrite_a_page(home() / "prefect" / "prefect.db")


def spoil_mlflow(reference: Reference) -> None:
    (home() / "mlflow.db").write_bytes(b"not a database" * 1000)


@pytest.mark.parametrize(
    ("damage", "part", "mended_by"),
    [
        (flip_without_a_trace, "artifacts", "running the experiment again"),
        (cut_manifest, "artifacts", "running the experiment again"),
        (put_a_stranger, "artifacts", "move it elsewhere"),
        (cut_clock, "clocks and lineage", "delete the file"),
        (cut_lineage, "clocks and lineage", "delete the file"),
        (exchange_records, "records", "running the experiment again"),
        (cut_record, "records", "running the experiment again"),
        (remove_artifact, "records", "running the experiment again"),
        (spoil_prefect, "Prefect's database", "rm -r"),
        (spoil_mlflow, "MLflow's database", "mv "),
    ],
)
def test_every_kind_of_damage_is_told_with_what_mends_it(
    reference: Reference, damage: Callable[[Reference], None], part: str, mended_by: str
) -> None:
    damage(reference)
    assert list(damaged()) == [part]
    (inspected,) = [each for each in inspect(home()) if each.damaged]
    text = printed()
    assert mended_by in text and all(sentence in text for sentence in inspected.damaged)


def test_running_again_mends_artifacts_and_records(reference: Reference) -> None:
    flip_without_a_trace(reference)
    exchange_records(reference)
    assert list(damaged()) == ["artifacts", "records"]
    for value in (1.0, 2.0):
        plums(Parameters(value=value))
    assert damaged() == {}


def test_what_is_left_over_is_told_and_is_no_damage(reference: Reference) -> None:
    with default_store().write("plum") as draft:
        (draft.folder / "half.txt").write_text("half")
        assert [len(part.left_over) for part in inspect(home())] == [1, 0, 0, 0, 0]
    key = cache_key(plums, Parameters())
    remove_artifact(reference)
    (records_folder() / key).unlink()
    assert damaged() == {}
    assert [len(part.left_over) for part in inspect(home())] == [0, 2, 0, 0, 0]
    assert "Left over, harmless: 2" in printed()


def test_many_damaged_things_are_counted_and_the_table_fits_a_terminal(turnwise_home: Path) -> None:
    for number in range(30):
        with default_store().write("sample") as draft:
            draft.metrics["number"] = number
        cut_clock(draft.reference)
    text = printed()
    assert "* and 10 more" in text
    assert max(map(len, text.split("\n\n")[0].splitlines())) <= 80


def test_progress_is_reported(reference: Reference) -> None:
    reports: list[progress.Progress] = []
    with progress.listening(reports.append):
        inspect(home())
    assert [report.what for report in reports if report.done == 0] == PARTS
    assert {report.total for report in reports if report.what == "artifacts"} == {2}


def test_the_command_ends_with_status_1_where_something_is_damaged_and_imports_no_prefect(
    turnwise_home: Path,
) -> None:
    with default_store().write("sample") as draft:
        draft.metrics["number"] = 1.0
    script = (
        "import sys; from flows.commands.cli import main\n"
        "import os; leave = os._exit\n"
        "def check(status): assert 'prefect' not in sys.modules; leave(status)\n"
        "os._exit = check; main(['verify'])\n"
    )

    def verify() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    intact = verify()
    assert (intact.returncode, intact.stderr) == (0, "")
    cut_manifest(draft.reference)
    broken = verify()
    assert broken.returncode == 1
    assert str(draft.reference) in broken.stdout and "turnwise: everything in" in broken.stderr
