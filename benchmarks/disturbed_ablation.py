"""An ablation that must go on, or stop in one sentence and go on when started again, whatever it loses on the way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
PATIENCE_SECONDS = 900.0
RESTARTS = 3
TOLD = re.compile(r"a worker process ended with status .*?(?=\. It said)|the database at .*? and is waited for")


@dataclass
class Loss:
    """A kill: of what, when, and what became of it."""

    what: str
    stage: str
    results: int
    """It strikes when so many results of the stage are stored."""
    strike: Callable[[int], object]
    """Kill, and bring back what the ablation cannot bring back itself; given the ablation's process."""
    back: Callable[[], object] = lambda: None
    """Bring back what was killed, after the ablation has stopped because of it."""
    stops: bool = False
    """Whether the ablation must stop because of it, which is waited for."""
    message: str = "nothing, and went on"
    broken: str = ""


@dataclass
class Trial:
    """An ablation, and what is killed while it runs, in order."""

    name: str
    settings: Sequence[str]
    losses: Sequence[Loss]
    processes: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    broken_in: Callable[[Path], str] = lambda undisturbed: ""
    """What else does not hold at the end; given the home of the ablation that nothing happened to."""
    equal: str = ""


class Home:
    """A folder with a params.yaml, in which the small ablation is run."""

    def __init__(self, folder: Path, trial: Trial) -> None:
        self.folder, self._trial = folder, trial
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")

    def start(self) -> subprocess.Popen[bytes]:
        """Begin the ablation, or go on with it; what it says is added to `log`."""
        command = [sys.executable, "-m", "flows.commands.cli", "ablation", str(TINY)]
        command += ["--processes", str(self._trial.processes)] if self._trial.processes > 1 else []
        for setting in self._trial.settings:
            command += ["-s", setting]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {"TURNWISE_HOME": str(self.folder / "home"), "PYTHONPATH": paths, **self._trial.variables}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stored_results(self, stage: str) -> int:
        """How many results of a stage are stored."""
        return len(list((self.folder / "home" / "results" / stage).glob("*")))

    def log_after(self, beginning: int) -> str:
        """What it said after so many bytes."""
        return (self.folder / "log").read_bytes()[beginning:].decode(errors="replace")

    def log_bytes(self) -> int:
        """The length of what it has said."""
        return (self.folder / "log").stat().st_size if (self.folder / "log").exists() else 0

    @property
    def _digests_file(self) -> Path:
        return self.folder / "results" / "tiny" / "digests.json"

    def is_finished(self) -> bool:
        """Whether the ablation has ended well."""
        return self._digests_file.exists()

    def digests(self) -> str:
        """What a repeat must give again."""
        return "".join(
            line for line in self._digests_file.read_text(encoding="utf-8").splitlines() if "platform" not in line
        )


def endure(home: Home, losses: Sequence[Loss]) -> None:
    """Run the ablation to its end, with all these losses on the way."""
    process, beginning, last = home.start(), home.log_bytes(), None
    for loss in losses:
        wanted = loss.results
        if last is not None and last.stops:
            # Lost workers may have gone on until now: strike when the ablation is at work again.
            wanted = max(wanted, home.stored_results(loss.stage) + 1)
        while home.stored_results(loss.stage) < wanted:
            if process.poll() is not None:
                if last is None or not process.returncode:
                    loss.broken = f"the ablation ended with status {process.returncode} before it was struck"
                    return
                process, beginning = _restart(home, last, beginning)
            time.sleep(0.05)
        print(f"  {loss.what}, at {loss.stage} {loss.results}", flush=True)
        if last is not None:
            _hear(last, home.log_after(beginning))
        beginning, last = home.log_bytes(), loss
        loss.strike(process.pid)
        if loss.stops and process.wait(PATIENCE_SECONDS) == 0:
            loss.broken = "the ablation did not stop"
            return
    for _ in range(RESTARTS):
        status = process.wait(PATIENCE_SECONDS)
        if last is None:
            return
        if status == 0:
            _hear(last, home.log_after(beginning))
            return
        process, beginning = _restart(home, last, beginning)
    if process.wait(PATIENCE_SECONDS) and last is not None:
        last.broken = "it did not go on when it was started again"


def _restart(home: Home, loss: Loss, beginning: int) -> tuple[subprocess.Popen[bytes], int]:
    """Start a stopped ablation again; note what it said."""
    output = home.log_after(beginning)
    ours = [line for line in output.splitlines() if line.startswith("turnwise: ")]
    loss.message = ours[-1] if ours else output[-300:]
    if not ours or "Traceback" in output:
        loss.broken = "it did not stop in one sentence"
    print(f"    stopped: {loss.message}", flush=True)
    loss.back()
    return home.start(), home.log_bytes()


def _hear(loss: Loss, output: str) -> None:
    """Note what an ablation said that went on."""
    matches = TOLD.findall(" ".join(output.split()))
    if "Traceback" in output:
        loss.broken = "it said more than a sentence"
    if matches and loss.message.startswith("nothing"):
        loss.message = f"{matches[0]}, and went on"


def undisturbed(folder: Path, settings: Sequence[str]) -> str:
    """The digests that one process makes with SQLite and a folder; found where `folder` holds them already."""
    home = Home(folder, Trial("undisturbed", settings, ()))
    if not home.is_finished() and home.start().wait(PATIENCE_SECONDS):
        raise RuntimeError(f"the run that nothing happens to must end well: see {folder / 'log'}")
    return home.digests()
