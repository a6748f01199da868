"""Standard output of any encoding, closed, cut off or full ends no command, and nothing that computes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNLIKE_UTF_8: Mapping[str, Mapping[str, str]] = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
TURNWISE = f"{sys.executable} -m flows.commands.cli"
PROGRAM = """
import sys
from pathlib import Path
from flows.runtime.streams import prepare_streams, unwritten_output
prepare_streams()
for _ in range(20_000):
    print("computing")
print("still computing", file=sys.stderr)
sys.stdout.flush()
Path(sys.argv[1]).write_text(f"computed; {unwritten_output()}")
"""


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, timeout=300
    )


def printed(text: str, encoding: str) -> bytes:
    program = f"from flows.runtime.streams import prepare_streams; prepare_streams(); print({text!a})"
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    return said.stdout.removesuffix(b"\n")


def test_what_an_encoding_lacks_is_written_as_the_nearest_that_it_has() -> None:
    assert printed("−0.46 to 0.18, 1–2 ↑ × …", "ascii") == b"-0.46 to 0.18, 1-2 ^ x ..."
    assert printed("Zürich 你好 │─┌█", "ascii") == b"Zurich ?? |-+#"
    assert printed("Zürich −1", "latin-1") == "Zürich -1".encode("latin-1")
    assert printed("Zürich 你好 −1", "utf-8") == "Zürich 你好 −1".encode()


def test_what_no_encoding_has_is_written_too() -> None:
    assert printed("a page \ud800", "utf-8") == b"a page ?"
    assert printed("a folder \udcff", "utf-8") == b"a folder \xff", "the bytes of a path stay what they are"


@pytest.mark.parametrize("environment", UNLIKE_UTF_8)
@pytest.mark.parametrize("arguments", ["ablation --help", "ablatoin"])
def test_every_command_prints_in_any_encoding(arguments: str, environment: str) -> None:
    usual, said = shell(f"{TURNWISE} {arguments}"), shell(f"{TURNWISE} {arguments}", **UNLIKE_UTF_8[environment])
    assert said.returncode == usual.returncode
    assert b"Traceback" not in said.stderr
    assert len(said.stdout.splitlines()) == len(usual.stdout.splitlines())


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", "| head -1", "| true"])
def test_a_command_ends_as_it_would_where_nobody_reads_it(closed: str) -> None:
    said = shell(f"set -o pipefail; {TURNWISE} ablation --help {closed}")
    assert (said.returncode, said.stderr) == (0, b"")


def test_a_refusal_that_cannot_be_printed_still_has_its_status() -> None:
    assert shell(f"{TURNWISE} ablatoin >&- 2>&-").returncode == 2


@pytest.mark.parametrize(
    ("output", "unwritten"),
    [
        (">&-", "None"),
        ("| head -1", "None"),
        (">/dev/full", "standard output must be written; no space left on device: what is missing there was computed"),
    ],
)
def test_what_computes_goes_on_without_its_output(tmp_path: Path, output: str, unwritten: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    said = shell(f"{sys.executable} {tmp_path}/program.py {tmp_path}/result {output}", PYTHONPATH=str(ROOT))
    assert (tmp_path / "result").read_text(encoding="utf-8") == f"computed; {unwritten}"
    assert said.stderr == b"still computing\n"


def test_a_full_disk_behind_the_output_is_said_and_is_no_success() -> None:
    said = shell(f"{TURNWISE} ablation --help >/dev/full")
    assert said.returncode == 1
    assert said.stderr.decode().startswith("turnwise: standard output must be written; no space left on device")


def test_a_file_that_is_opened_later_gets_no_number_of_a_closed_stream() -> None:
    program = "import os, sys; from flows.runtime.streams import prepare_streams; prepare_streams()"
    for closed in (">&-", "<&- >&- 2>&-"):
        opened = f"{program}; sys.exit(os.open('/dev/null', 0))"
        assert shell(f'{sys.executable} -c "{opened}" {closed}').returncode > 2
