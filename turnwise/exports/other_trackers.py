"""The curves of recorded runs in the files of other trackers, for groups that compare there. Nothing is sent anywhere.

    tensorboard    FOLDER/RUN/events.out.tfevents...        tensorboard --logdir FOLDER
    wandb          FOLDER/wandb/offline-run-.../run-ID.wandb    wandb sync FOLDER/wandb/offline-run-*

A step is an iteration; 0 is the warm start. Metrics have the names that they have in MLflow; those on the test
tasks stand at the last iteration. TensorBoard shows its sections by name, so each has a number there, success first;
alarms that never rang are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.records.metrics import curves_of, evaluation_metrics
from turnwise.tracking.finding import RecordedRun
from turnwise.tracking.values import mlflow_name

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""What writes the files of each tracker: both are in the extra `trackers`."""
SECTIONS: tuple[tuple[str, str], ...] = (
    ("1_success", r"(test|validation)/(sampled|greedy)/(success|pass_at_\d+)|rollout/success"),
    ("2_rewards", r".+/reward/.+"),
    ("3_training", r"(rollout|update|credit|horizon)/.+"),
    ("4_validation", r"validation/.+"),
    ("5_test", r"test/.+"),
    ("7_machine", r"(seconds|speed|memory)/.+"),
    ("8_alarms", r"alarm/.+"),
    ("6_monitors", r".+"),
)
"""The sections of TensorBoard's page, and the names of their metrics; the first that fits counts."""
HOW_TO_READ = {"tensorboard": "tensorboard --logdir {}", "wandb": "wandb sync {}/wandb/offline-run-*"}


def require_tracker(tracker: str) -> None:
    """Raise ConfigurationError where the package that writes a tracker's files is not installed."""
    if find_spec(PACKAGES[tracker]) is None:
        raise ConfigurationError(
            f"--as {tracker} needs the package {PACKAGES[tracker]}, which is not installed: pip install "
            "'turnwise[trackers]'",
            "TW-missing-package",
        )


def write_for(tracker: str, runs: Sequence[RecordedRun], folder: Path) -> None:
    """Write the curves of the runs into an empty folder, or one to make; runs of one name by ablation and id, too.

    Raises ConfigurationError where the tracker's package is not installed.
    """
    require_tracker(tracker)
    folder.mkdir(parents=True, exist_ok=True)
    times = Counter(run.name for run in runs)
    for run in runs:
        # Two runs in one folder would be one curve there.
        own = run.name if times[run.name] == 1 else f"{run.ablation} {run.name} {run.id}"
        WRITERS[tracker](replace(run, name=own), folder)


def _points(run: RecordedRun) -> Iterator[tuple[int, Mapping[str, float]]]:
    artifacts = run.artifacts
    test = {} if artifacts.test is None else evaluation_metrics("test", artifacts.test, artifacts.test_at_horizon)
    for number, metrics in curves_of(artifacts).items():
        all_metrics = {**metrics, **(test if number == len(artifacts.iterations) else {})}
        yield number, {mlflow_name(name): value for name, value in all_metrics.items()}


def _write_tensorboard(run: RecordedRun, folder: Path) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder / run.name.replace("/", "-")), write_to_disk=True) as writer:
        parameters = json.dumps(run.artifacts.experiment, indent=1)
        writer.add_text("parameters", f"    {parameters.replace(chr(10), f'{chr(10)}    ')}")
        points = list(_points(run))
        rang = {name for _, metrics in points for name, value in metrics.items() if value}
        for number, metrics in points:
            for name, value in metrics.items():
                if name in rang or not name.startswith("alarm/"):
                    writer.add_scalar(f"{_section(name)}/{name}", value, number)


def _section(metric: str) -> str:
    return next(section for section, pattern in SECTIONS if re.fullmatch(pattern, metric))


def _write_wandb(run: RecordedRun, folder: Path) -> None:
    os.environ.update({"WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_CODE": "true", "DO_NOT_TRACK": "true"})
    import wandb

    settings = wandb.Settings(
        mode="offline", console="off", silent=True, disable_git=True, x_disable_stats=True, x_disable_meta=True
    )
    with wandb.init(
        dir=folder,
        project=run.ablation or "turnwise",
        name=run.name,
        id=run.id,
        group=run.artifacts.variant,
        config={**run.artifacts.experiment, "variant": run.artifacts.variant, "seed": run.artifacts.seed},
        tags=[f"commit {run.tags['commit'][:12]}"] if "commit" in run.tags else None,
        settings=settings,
    ) as wandb_run:
        for number, metrics in _points(run):
            wandb_run.log(dict(metrics), step=number)
    wandb.teardown()  # else the process that writes its files stays


WRITERS: Mapping[str, Callable[[RecordedRun, Path], Any]] = {"tensorboard": _write_tensorboard, "wandb": _write_wandb}
