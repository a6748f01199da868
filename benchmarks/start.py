"""Processor seconds of what computes nothing: a wholly cached ablation again, and the commands that look at runs.

The tiny ablation of the end-to-end tests is computed once in a home of its own; then every command runs in a process of
its own, some times over, and the smallest sum of user and system time counts, children included. A server that the
command starts is not among them, so the table says whether Prefect was imported, without which none is.

    python -m benchmarks.start
    python -m benchmarks.start --project /path/to/another/checkout     with its code and its .venv
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from turnwise.store.run_environment import platform

PROJECT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "vllm", "prefect", "mlflow", "matplotlib", "pandas", "scipy")
ABLATION = ("ablation", "tiny.yaml", "--processes", "2")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ABLATION,
    ("show",),
    ("compare", "tiny"),
    ("lineage", "mt-grpo/success"),
    ("--help",),
    ("play", "--help"),
)
PROBE = f"""
import json, sys
from flows.commands.cli import status_of
status = status_of(sys.argv[2:])
json.dump([name for name in {HEAVY!r} if name in sys.modules], open(sys.argv[1], "w"))
sys.stdout.flush()
import os
os._exit(status)
"""


def measure(python: Path, command: tuple[str, ...], folder: Path) -> tuple[float, list[str]]:
    """The processor seconds of a command, and the heavy libraries that it has imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    imported = folder / "imported.json"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [str(python), "-c", PROBE, str(imported), *command],
        cwd=folder,
        env={**environment, "TURNWISE_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, json.loads(imported.read_text(encoding="utf-8"))


def main() -> None:
    """Measure one checkout and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=PROJECT)
    parser.add_argument("--rounds", type=int, default=3)
    arguments, _ = parser.parse_known_args()
    python = arguments.project / ".venv" / "bin" / "python"
    python = python if python.exists() else Path(sys.executable)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path in ("params.yaml", "tests/end_to_end/tiny.yaml"):
            shutil.copy(arguments.project / path, folder)
        first, _ = measure(python, ABLATION, folder)
        print(f"processor {' '.join(platform()['processor']['flags'])}; computed once in {first:.1f} s")
        print(f"{'command':<40}{'processor s':>12}  imports")
        for command in COMMANDS:
            measurements = [measure(python, command, folder) for _ in range(arguments.rounds)]
            seconds, imported = min(measurements)
            print(
                f"{'turnwise ' + ' '.join(command):<40}{seconds:>12.2f}  {', '.join(imported) or 'none of the heavy'}"
            )


if __name__ == "__main__":
    main()
