"""What runs in a stage, traced function by function, and whether its cache key covers it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from tasks.caching import Dependencies
from turnwise.store.fingerprint import DETERMINES_NOTHING, modules_of

ROOT = Path(__file__).parents[2]

READS_FILES = "reads files whose format is part of the key of who wrote them"
IN_MEMORY = "loads what an update has trained, with the optimizer's state: what scores it is in the key"
GIVES_MEMORY_BACK = "lets an earlier stage's engine rest before a learner computes; what samples is in the key"
LEFT_BY_TRAINING = dict.fromkeys(
    (
        "turnwise.policy.critic.critic",
        "turnwise.policy.learner.learner",
        "turnwise.policy.learner.loading",
        "turnwise.policy.learner.processes",
        "turnwise.policy.muon",
        "turnwise.policy.optimizer",
    ),
    IN_MEMORY,
)
MAY_ALSO_RUN: Mapping[str, Mapping[str, str]] = {
    "*": {
        "turnwise.data.scores": READS_FILES,
        "turnwise.data.trajectory_files": READS_FILES,
        "turnwise.data.task_sets": READS_FILES,
        "turnwise.data.conversations": READS_FILES,
        "turnwise.health.record": READS_FILES,
        "turnwise.config.runner": "checks a section of the configuration, whose values are in the key",
        "turnwise.policy.engines.resident": GIVES_MEMORY_BACK,
        "turnwise.policy.engines.vllm": GIVES_MEMORY_BACK,
        "turnwise.policy.engines.processes": GIVES_MEMORY_BACK,
    },
    "reference": LEFT_BY_TRAINING,
    "rescore": LEFT_BY_TRAINING,
    "values": LEFT_BY_TRAINING,
    "probe": LEFT_BY_TRAINING,
}
"""By stage (*: every one), the modules that may run without being in its key, each with the reason."""


@dataclass
class StageRun:
    """One call of a stage's function."""

    stage: Dependencies
    parameters: Any
    files: set[str] = field(default_factory=set)
    """The files of the functions that ran in it."""

    def uncovered(self) -> list[str]:
        """The modules that ran, are not in the key, and are not named in `MAY_ALSO_RUN`."""
        covered = modules_of(self.stage.modules(self.parameters), [*DETERMINES_NOTHING])
        allowed = {*covered, *MAY_ALSO_RUN["*"], *MAY_ALSO_RUN.get(self.stage.name, {})}
        ran = {name for name in map(module_of, self.files) if name is not None}
        return sorted(
            name
            for name in ran - allowed
            if not any(name == each or name.startswith(f"{each}.") for each in DETERMINES_NOTHING)
        )


@cache
def module_of(file: str) -> str | None:
    """The module of the library or of a world that a file is; None for any other file."""
    path = Path(file)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__") if parts[0] in ("turnwise", "envs", "tasks", "flows") else None


@contextmanager
def traced(stages: Mapping[str, Dependencies]) -> Iterator[list[StageRun]]:
    """Within the block, trace the calls of these stages' functions, in all threads that begin in it."""
    by_code = {id(stage.function.__code__): stage for stage in stages.values()}
    runs: list[StageRun] = []
    running: list[StageRun] = []
    local = threading.local()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_name == "<module>":  # what runs when a module is imported is not what a stage computes
                local.importing = getattr(local, "importing", 0) + 1
            elif (stage := by_code.get(id(code))) is not None:
                running.append(StageRun(stage, frame.f_locals["parameters"]))
                runs.append(running[-1])
            elif running and not getattr(local, "importing", 0):
                running[-1].files.add(code.co_filename)
        elif event == "return":
            if frame.f_code.co_name == "<module>":
                local.importing = max(getattr(local, "importing", 0) - 1, 0)
            elif running and id(frame.f_code) in by_code:
                running.pop()

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield runs
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
