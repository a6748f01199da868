"""What an ablation came to, kept under all that it depends on: a repeat finds it without calling a stage.

    <home>/finished/<digest>.json    the artifacts of the preparation, of every run and of the report, and the key of
                                     every stage that was called

The digest is that of the parameters, the world, the code of the flows and of all that they import, plug-ins with what
they read, models and files from outside, and the platform. A change that could alter what is called, or a result, has
another digest, and the flow runs; stages that it does not concern are then found one by one, by their own keys.
Asking computes nothing, and imports no Prefect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.recording.record import plugin_modules_of
from tasks.observing import StageCall
from tasks.playing import playing_reads, world_code
from turnwise.data.outcomes import EarlyEnd, LeftOut
from turnwise.experiment import Experiment
from turnwise.plugins import versions
from turnwise.policy.gguf_models import CONVERTER
from turnwise.policy.gguf_sources import is_gguf
from turnwise.policy.pretrained import pretrained
from turnwise.project import home, project_root
from turnwise.runs.results import parameters_digest
from turnwise.runs.state import Iteration, Models, Prepared, Run, play_parameters
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.atomic_write import write_whole
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint
from turnwise.store.outside import cached_sha256
from turnwise.store.plugin_identity import plugin_ingredients
from turnwise.store.world_identity import world_ingredients

logger = logging.getLogger(__name__)


class RecordedRun(BaseModel):
    """One variant with one seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    changed: Experiment | None
    """The variant's configuration at the end of the run, where an alarm has changed it; None where none has."""
    models: Models
    start: Reference
    start_at_horizon: Reference | None
    start_warning: str
    iterations: list[Iteration]
    ended: EarlyEnd | None
    test: Reference | None
    test_at_horizon: Reference | None


@dataclass(frozen=True)
class AblationOutcome:
    """All artifacts of an ablation."""

    prepared: Prepared
    baselines: dict[str, Reference]
    """The evaluations of the baseline policies on the test task set, by name."""
    warm_start: Reference
    """The evaluation of the warm start on the test task set."""
    runs: list[Run]
    left_out: list[LeftOut]
    """The runs that a fault has left out."""
    report: Reference


class FinishedAblation(BaseModel):
    """An ablation of which every run counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prepared: dict[str, Reference]
    baselines: dict[str, Reference]
    warm_start: Reference
    runs: list[RecordedRun]
    report: Reference
    code: str
    """Its `computing_code`, which takes seconds to find out."""
    calls: list[StageCall]
    """Every stage that was called, in the order in which they returned."""

    def outcome(self, experiment: Experiment) -> AblationOutcome:
        """The artifacts, with the runs as they were when they had ended."""
        prepared = Prepared(**self.prepared)
        runs = [_run(each, experiment, prepared) for each in self.runs]
        return AblationOutcome(prepared, self.baselines, self.warm_start, runs, [], self.report)


def _recorded(run: Run) -> RecordedRun:
    """What is kept of a run."""
    return RecordedRun(
        variant=run.variant,
        seed=run.seed,
        changed=run.experiment if any(iteration.returned is not None for iteration in run.iterations) else None,
        models=run.models,
        start=run.start,
        start_at_horizon=run.start_at_horizon,
        start_warning=run.start_warning,
        iterations=run.iterations,
        ended=run.ended,
        test=run.test,
        test_at_horizon=run.test_at_horizon,
    )


def keep_finished(experiment: Experiment, outcome: AblationOutcome, code: str, calls: Sequence[StageCall]) -> None:
    """Keep what an ablation came to, with the code that computed it and the calls of stages: see `FinishedAblation`."""
    finished = FinishedAblation(
        prepared=vars(outcome.prepared),
        baselines=outcome.baselines,
        warm_start=outcome.warm_start,
        runs=[_recorded(run) for run in outcome.runs],
        report=outcome.report,
        code=code,
        calls=list(calls),
    )
    write_whole(_path(experiment), finished.model_dump_json())


def finished_ablation(experiment: Experiment) -> FinishedAblation | None:
    """What this ablation came to; None where that is not recorded as a whole. Nothing is computed.

    Nor is it where an artifact is missing or damaged, or is not known to have been made under its key: the flow then
    computes that again.
    """
    try:
        finished = FinishedAblation.model_validate_json(_path(experiment).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        logger.warning("%s cannot be read (%s); every stage is looked up", _path(experiment), error.errors()[0]["msg"])
        return None
    store = default_store()
    is_recorded = (
        store.was_made_under(call.reference, call.key.rpartition("/")[2]) and store.holds(call.reference)
        for call in finished.calls
    )
    return finished if all(is_recorded) else None


def _run(recorded: RecordedRun, experiment: Experiment, prepared: Prepared) -> Run:
    own = recorded.changed or experiment.variant(recorded.variant)
    run = Run(recorded.variant, recorded.seed, own, prepared, recorded.models, recorded.start)
    run.start_at_horizon, run.start_warning = recorded.start_at_horizon, recorded.start_warning
    run.iterations, run.ended = recorded.iterations, recorded.ended
    run.test, run.test_at_horizon = recorded.test, recorded.test_at_horizon
    return run


def _path(experiment: Experiment) -> Path:
    return home() / "finished" / f"{digest_of(_depends_on(experiment))}.json"


def _depends_on(experiment: Experiment) -> Mapping[str, object]:
    """Everything that what is called, and what it results in, depends on."""
    variants = [experiment.variant(name) for name in experiment.ablation.variants]
    plugins = sorted({module for variant in variants for module in plugin_modules_of(variant)})
    return {
        "parameters": parameters_digest(experiment),
        "world": world_ingredients(experiment.world),
        "code": fingerprint(["flows.ablation", *world_code(experiment), *plugins]),
        "plug-ins": plugin_ingredients(plugins),
        "rewards": [playing_reads(play_parameters(variant)) for variant in variants],
        "outside": list(_outside(variants)),
        "converter": versions(CONVERTER) if is_gguf(experiment.policy.model) else None,
        "platform": run_environment.platform(),
    }


def _outside(variants: Sequence[Experiment]) -> Iterator[str]:
    """The contents of models and conversations that are brought from outside."""
    for variant in variants:
        model, conversations = pretrained(variant.policy), variant.data.conversations
        yield "" if model is None else model.content
        yield "" if conversations is None else cached_sha256(project_root() / conversations)
