"""Runs that are killed again and again, and then left to end: they must give the digests of runs never killed.

A small ablation with vLLM and one without it, each computed by one process and by two, is run once to know its digests
and how its stages follow one another. Then it is begun in an empty home, killed by SIGKILL at a moment within a stage
that a seed chose, begun again, killed later, and so on, and at last left to end. The moments are spread over the warm
start, rollouts, updates, evaluations and the report. Every third kill takes Prefect's server, too, which otherwise
lives in a process group of its own. Afterwards must hold: the same digests, no process left over, every MLflow run
finished and none twice, nothing still running in Prefect's database, both databases intact.

    python -m benchmarks.kills --kills 50

Prints a line per kill and a table at the end; the exit status is 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise import seeding

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
STAGES = ("warm_start", "rollout", "update", "evaluate", "report")
SERVER_EVERY = 3
"""Every so many kills the server dies with the run."""
PATIENCE_SECONDS = 600.0
IDLE_SERVER_SECONDS = 20.0
MARK = "TURNWISE_KILLS_MARK"
"""An environment variable that every process of a home inherits, so that none escapes the count."""


@dataclass(frozen=True)
class Configuration:
    """How one home is computed."""

    engine: str
    processes: int

    @property
    def name(self) -> str:
        """What the output calls it."""
        return f"{self.engine}, {self.processes} process{'es' if self.processes > 1 else ''}"


@dataclass(frozen=True)
class Record:
    """A stage's result: the stage, and when it was stored, in seconds since the run began."""

    stage: str
    at: float


@dataclass
class Outcome:
    """What became of a home whose runs were killed."""

    kills: list[str] = field(default_factory=list)
    """The stage that each kill struck."""
    broken: list[str] = field(default_factory=list)
    """The promises that did not hold."""


class Home:
    """A folder with a params.yaml, in which the small ablation is run."""

    def __init__(self, folder: Path, configuration: Configuration) -> None:
        self.folder = folder
        self.configuration = configuration
        self.mark = uuid.uuid4().hex
        folder.mkdir(parents=True)
        shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")

    def start(self) -> subprocess.Popen[bytes]:
        """Begin the ablation, or go on with it; what it says is added to `log`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWISE_", "PREFECT"))}
        paths = [str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
        variables = {MARK: self.mark, "PYTHONPATH": os.pathsep.join(paths), "TURNWISE_HOME": str(self.folder / "home")}
        command = [sys.executable, "-m", "flows.commands.cli", "ablation", str(TINY)]
        command += ["-s", f"compute.engine={self.configuration.engine}"]
        command += ["--processes", str(self.configuration.processes)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**inherited, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def records(self) -> list[Path]:
        """The record of every stage that was computed."""
        return [path for path in (self.folder / "home" / "results").glob("*/*") if path.is_file()]

    def digests(self) -> dict[str, object]:
        """What a repeat must give again."""
        contents = json.loads((self.folder / "results" / "tiny" / "digests.json").read_text(encoding="utf-8"))
        return {name: value for name, value in contents.items() if name != "platform"}

    def processes(self) -> list[int]:
        """Every living process that one of this home's commands has started, directly or not."""
        identifiers = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{MARK}={self.mark}".encode() in path.read_bytes().split(b"\0"):
                    identifiers.append(int(path.parent.name))
            except OSError:
                continue  # it has ended meanwhile
        return identifiers

    def end(self, process: subprocess.Popen[bytes], *, with_server: bool) -> None:
        """Kill the run's process group and, where wanted, every other process of the home."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for identifier in self.processes() if with_server else []:
            try:
                os.kill(identifier, signal.SIGKILL)
            except ProcessLookupError:
                continue


def run_undisturbed(home: Home) -> list[Record]:
    """Run to the end; the stages in the order in which their results were stored."""
    began = time.time()
    process = home.start()
    if process.wait(PATIENCE_SECONDS):
        raise RuntimeError(f"the run that is not killed must end well: see {home.folder / 'log'}")
    records = [Record(path.parent.name, path.stat().st_mtime - began) for path in home.records()]
    return sorted(records, key=lambda record: record.at)


def kill_moments(timeline: Sequence[Record], kills: int, seed: int) -> list[tuple[int, float]]:
    """When to kill: after so many records, and then so many seconds into the stage that makes the next one.

    The stages of interest take turns as far as there are enough of them; a stage that occurs once is struck more often.
    """
    draw = seeding.generator(seed, "kills", kills)
    places = {stage: [place for place, record in enumerate(timeline) if record.stage == stage] for stage in STAGES}
    moments = []
    for number in range(kills):
        stage = STAGES[number % len(STAGES)]
        place = int(draw.choice(places[stage]))
        began = timeline[place - 1].at if place else 0.0
        moments.append((place, float(draw.uniform(0.0, max(0.05, timeline[place].at - began)))))
    return sorted(moments)


def run_killed(home: Home, timeline: Sequence[Record], kills: int, seed: int) -> Outcome:
    """Begin, kill, begin again, ..., and let the last go to its end."""
    outcome = Outcome()
    for number, (place, delay) in enumerate(kill_moments(timeline, kills, seed), start=1):
        process = home.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(home.records()) < place and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
        if process.poll() is not None:
            outcome.broken.append(f"ended by itself with status {process.returncode} before kill {number}")
            break
        with_server = number % SERVER_EVERY == 0
        home.end(process, with_server=with_server)
        outcome.kills.append(timeline[place].stage)
        print(f"  kill {number}: {timeline[place].stage}{', with the server' if with_server else ''}", flush=True)
    if home.start().wait(PATIENCE_SECONDS):
        outcome.broken.append("the last run did not end well")
    return outcome


def broken_promises(home: Home, expected: dict[str, object]) -> list[str]:
    """What does not hold after the last run."""
    broken = [] if home.digests() == expected else ["the digests differ from those of the run that was not killed"]
    subprocess.run(
        [sys.executable, "-c", "from flows.runtime.server import stop_server; stop_server()"],
        cwd=home.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TURNWISE_HOME": str(home.folder / "home")},
        check=True,
    )
    deadline = time.monotonic() + IDLE_SERVER_SECONDS
    while (leftovers := home.processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    broken += [f"{len(leftovers)} processes are left over"] if leftovers else []
    databases = home.folder / "home"
    broken += _stray(databases / "mlflow.db", "runs", "status", {"FINISHED": 3})
    broken += _stray(
        databases / "prefect" / "prefect.db", "flow_run", "state_type", {"COMPLETED": None, "CRASHED": None}
    )
    return broken


def _stray(database: Path, table: str, column: str, expected: dict[str, int | None]) -> list[str]:
    """What a database holds that it must not: damage, or runs in other states or numbers (None: any) than expected."""
    with sqlite3.connect(database) as connection:
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
        states = Counter(row[0] for row in connection.execute(f"SELECT {column} FROM {table}"))
    broken = [] if answer == "ok" else [f"{database.name} is damaged: {answer}"]
    stray = {state: count for state, count in states.items() if expected.get(state, 0) not in (None, count)}
    return broken + ([f"{database.name} holds runs that are {stray}"] if stray else [])


def main() -> int:
    """Kill, compare and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the homes lie; by default a temporary folder")
    options = parser.parse_args()
    configurations = [Configuration(engine, count) for engine in ("vllm", "embedded") for count in (1, 2)]
    shares = [options.kills // 4 + (place < options.kills % 4) for place in range(4)]
    struck: Counter[str] = Counter()
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for number, (configuration, kills) in enumerate(zip(configurations, shares, strict=True)):
            print(f"{configuration.name}: not killed", flush=True)
            undisturbed = Home(folder / f"{number}-undisturbed", configuration)
            timeline = run_undisturbed(undisturbed)
            expected = undisturbed.digests()
            failures += _report(broken_promises(undisturbed, expected))
            print(f"{configuration.name}: {kills} kills", flush=True)
            home = Home(folder / f"{number}-killed", configuration)
            outcome = run_killed(home, timeline, kills, options.seed + number)
            struck.update(outcome.kills)
            failures += _report(outcome.broken + broken_promises(home, expected))
    print(f"{sum(struck.values())} kills: " + ", ".join(f"{stage} {struck[stage]}" for stage in STAGES))
    print("every promise held" if not failures else f"{failures} promises broken")
    return 1 if failures else 0


def _report(broken: Sequence[str]) -> int:
    print("".join(f"  BROKEN: {each}\n" for each in broken) or "  every promise held\n", end="", flush=True)
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
