"""Results: the reports that are copied out of the store, and the digests that a repeated run must reproduce.

It reads runs as the flows have just made them (`Run`, `Prepared`). What is read back of a recorded run is in
`turnwise/tracking` and `turnwise/reporting/data`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.agent.playing import the_world
from turnwise.config.schema import BESIDE_RESULTS
from turnwise.data.outcomes import LeftOut
from turnwise.data.task_sets import task_set_digest, tasks_of
from turnwise.experiment import Experiment
from turnwise.policy.pretrained import pretrained
from turnwise.project import home, project_root
from turnwise.reporting.data.tables import DATA_FILE
from turnwise.reporting.finding import BEFORE_TRAINING
from turnwise.reporting.formatting import PROCESSES
from turnwise.reporting.html.report_files import write_report
from turnwise.results import report_data
from turnwise.results.costs import costs_of, course_of
from turnwise.results.outcomes import Outcomes
from turnwise.results.report_data import BEFORE_RUNS, EVERYTHING_ELSE, Costs, ReportData
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.digests import digest_of
from turnwise.tracking.finding import RunArtifacts
from turnwise.tracking.reproduction import why_different
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.state import Prepared, Run
from turnwise.world import SPLITS


def read_report(reference: Reference) -> report_data.ReportData:
    """The report data of a report artifact."""
    return report_data.ReportData.from_json((default_store().folder(reference) / DATA_FILE).read_text(encoding="utf-8"))


DIGESTS_FILE = "digests.json"


def results_folder(experiment: Experiment) -> Path:
    """The folder of an ablation's report and digests: `results/<name>` in the project."""
    return project_root() / "results" / experiment.ablation.name


def all_references(runs: Sequence[Run]) -> list[Reference]:
    """All artifacts that the runs have made: the evaluations before and after, then those of each iteration."""
    references: list[Reference] = []
    for run in runs:
        references += run.evaluations
        references += [reference for iteration in run.iterations for reference in iteration.made.values()]
    return references


def digests_of(
    experiment: Experiment,
    code: str,
    digest: str,
    prepared: Prepared,
    evaluations: Mapping[str, Reference],
    runs: Sequence[Run],
) -> dict[str, Any]:
    """The digests that a run with the same parameters and seeds must reproduce bit by bit.

    The entry `made` is not one of them: it says which parameters, code and platform produced the results; `code`
    is the ablation's `computing_code`.
    """
    return {
        "all": digest,
        **{f"{split} task set": prepared.task_set(split).digest for split in SPLITS},
        "demonstrations": prepared.demonstrations.digest,
        "tokenizer": prepared.tokenizer.digest,
        "warm start": prepared.warm_start.digest,
        "evaluations": {name: reference.digest for name, reference in evaluations.items()},
        "runs": {
            run.name: {"policy": run.policy.digest, "test": run.test.digest if run.test else None} for run in runs
        },
        "made": {
            "parameters": digest_of([parameters_digest(experiment), _brought(experiment, prepared)]),
            "code": code,
            "platform": run_environment.platform(),
        },
    }


def parameters_digest(experiment: Experiment) -> str:
    """Digest of everything in the configuration that can change a result; where it is recorded is not included."""
    return digest_of(experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS}))


def _brought(experiment: Experiment, prepared: Prepared) -> list[str]:
    """Content digests of the inputs from outside that the parameters name: a pretrained policy, conversations."""
    policy = pretrained(experiment.policy)
    demonstrations = [prepared.demonstrations.digest] if experiment.data.conversations is not None else []
    return [*([policy.content] if policy else []), *demonstrations]


def write_results(folder: Path, data: ReportData, digests: Mapping[str, Any]) -> None:
    """Write all files of `results/<name>`: the report, which is not drawn again if it is there, and `digests.json`."""
    drawing_record = home() / "drawn" / f"{digest_of(str(folder))}.json"
    write_report(data, folder, {DIGESTS_FILE: (json.dumps(digests, indent=1) + "\n").encode()}, drawing_record)


def compared_with_former(folder: Path, digests: Mapping[str, Any]) -> str:
    """Whether these digests repeat earlier ones, from the folder or else from the commit, and if not, why.

    Empty if neither was made with these parameters. Digests that do not record their parameters count as comparable.
    """
    for text in _former_digests(folder):
        try:
            former = json.loads(text)
        except ValueError:  # a part of a file, after a power failure, or one with the marks of a merge
            continue
        origin = former.get("made", {})
        if origin.get("parameters", digests["made"]["parameters"]) == digests["made"]["parameters"]:
            if former["all"] == digests["all"]:
                return f"the digests that {DIGESTS_FILE} had"
            return f"other digests than {DIGESTS_FILE} had: {why_different(origin, digests['made'])}"
    return ""


def _former_digests(folder: Path) -> Iterator[str | bytes]:
    """Earlier digests: from the folder, then from the commit, since DVC deletes the former before it runs a stage."""
    path = folder / DIGESTS_FILE
    if path.is_file():
        yield path.read_bytes()
    root = project_root()
    if path.is_relative_to(root) and (text := run_environment.committed_text(path.relative_to(root), root)) is not None:
        yield text


def with_circumstances(
    data: ReportData,
    experiment: Experiment,
    prepared: Prepared,
    report: Reference,
    evaluations: Sequence[Reference],
    runs: Sequence[Run],
) -> ReportData:
    """Report data plus run metadata: times, also of each variant's runs, and the run environment and parameters.

    Notes are added that say of which variants the reinforcement had nothing to begin with.

    `evaluations` are those of the baseline policies and the warm start on the test task set.
    """
    work = []
    for each in data.work:
        own = [run for run in runs if run.variant == each.variant]
        work.append(dataclasses.replace(each, seconds=stage_seconds(own)))
    hours = {each.variant: sum(each.seconds.values()) / each.runs / 3600 for each in work}  # of one run, on average
    return dataclasses.replace(
        data,
        stages=[*BEFORE_RUNS, *iteration_stages.accounts(), EVERYTHING_ELSE],
        seconds=account(prepared, report, evaluations, runs),
        work=work,
        outcomes=_with_seconds(data.outcomes, runs),
        costs=_costs(experiment, runs, [] if data.outcomes is None else data.outcomes.left_out),
        race=None if data.race is None else data.race.with_hours(hours),
        lineage=lineage_of(experiment, prepared, report),
        notes=[*data.notes, *start_notes(runs)],
    )


def _costs(experiment: Experiment, runs: Sequence[Run], left_out: Sequence[LeftOut]) -> Costs | None:
    """How the runs compare at an equal cost."""
    spending = iteration_stages.spending()
    courses = [
        course_of(
            run.variant,
            run.seed,
            run.start,
            [iteration.artifacts for iteration in run.iterations],
            vars(run.prepared).values(),
            spending,
            ended=run.ended is not None,
        )
        for run in runs
    ]
    ablation = experiment.ablation
    return costs_of(courses, the_world(experiment.world), ablation.budget, ablation.until, left_out)


def _with_seconds(outcomes: Outcomes | None, runs: Sequence[Run]) -> Outcomes | None:
    """The outcomes with the seconds that each run that was ended early has cost."""
    if outcomes is None:
        return None
    ended = []
    for each in outcomes.ended:
        (own,) = (run for run in runs if (run.variant, run.seed) == (each.variant, each.seed))
        work = None if each.work is None else dataclasses.replace(each.work, seconds=stage_seconds([own]))
        ended.append(dataclasses.replace(each, work=work))
    return dataclasses.replace(outcomes, ended=ended)


def start_notes(runs: Sequence[Run]) -> list[str]:
    """For each warning of a start, a note that names the variants whose reinforcement had nothing to begin with."""
    variants: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.start_warning:
            variants.setdefault(run.start_warning, {})[run.variant] = None
    return [f"{BEFORE_TRAINING}{', '.join(names)}: {words}." for words, names in variants.items()]


def keep_time(report: Reference, seconds: float, processes: int, recomputed: bool) -> None:
    """Record the compute time of the stages that a report covers, over all processes.

    An ablation may be computed in several sessions, whose times add up; if everything was `recomputed` now, only this
    session counts.
    """
    before = {} if recomputed else default_store().clock(report)
    default_store().record_clock(
        report,
        {
            "wall_seconds": before.get("wall_seconds", 0.0) + seconds,
            "processes": max(processes, before.get("processes", 1)),
        },
    )


def account(
    prepared: Prepared, report: Reference, evaluations: Sequence[Reference], runs: Sequence[Run]
) -> dict[str, float]:
    """The seconds that the results cost when they were computed; shared results are counted once."""
    store = default_store()
    set_up, warm_start = BEFORE_RUNS
    seconds = {
        set_up: set_up_seconds(),
        warm_start: store.clock(prepared.warm_start).get("seconds", 0.0),
        **stage_seconds(runs, evaluations),
    }
    wall = store.clock(report).get("wall_seconds", 0.0)
    seconds[EVERYTHING_ELSE] = max(0.0, wall - sum(seconds.values()) + seconds[set_up])
    return seconds


def stage_seconds(runs: Sequence[Run], evaluations: Sequence[Reference] = ()) -> dict[str, float]:
    """The seconds of these runs and further evaluations, by stage of the time account; each artifact counts once."""
    evaluation = iteration_stages.recorded_groups()["validation"]
    stage_of = {reference: evaluation for run in runs for reference in run.evaluations}
    stage_of |= dict.fromkeys(evaluations, evaluation)
    stage_of |= {
        reference: stage
        for run in runs
        for each in run.iterations
        for stage, reference in iteration_stages.iteration_artifacts(each)
    }
    return _by_account(stage_of)


def recorded_seconds(runs: Sequence[RunArtifacts]) -> dict[str, float]:
    """The same of recorded runs, whose iterations name each artifact, also one that an earlier stage has made."""
    evaluation = iteration_stages.recorded_groups()["validation"]
    stages = {stage.name: stage for stage in reversed(iteration_stages.STAGES)}
    stage_of: dict[Reference, iteration_stages.IterationStage] = {}
    for run in runs:
        outside = (run.start, run.start_at_horizon, run.test, run.test_at_horizon)
        stage_of |= {reference: evaluation for reference in outside if reference is not None}
        for name, reference in (each for iteration in run.iterations for each in iteration.items()):
            # The first mention counts: a critic on the policy's trunk is named after the policy that it is.
            if name in stages and reference not in run.prepared.values():
                stage_of.setdefault(reference, stages[name])
    return _by_account(stage_of)


def _by_account(stage_of: Mapping[Reference, iteration_stages.IterationStage]) -> dict[str, float]:
    seconds = dict.fromkeys(iteration_stages.accounts(), 0.0)
    for reference, stage in stage_of.items():
        for cost in stage.costs:
            if cost.account:
                seconds[cost.account] += default_store().clock(reference).get(cost.clock, 0.0)
    return seconds


def set_up_seconds() -> float:
    """The installation time in seconds, as measured by `make`; 0 if the environment was installed otherwise."""
    path = Path(sys.prefix) / "set-up-seconds"
    return float(path.read_text(encoding="utf-8")) if path.is_file() else 0.0


def lineage_of(experiment: Experiment, prepared: Prepared, report: Reference) -> list[tuple[str, str]]:
    """The provenance of the results: code, parameters, data, platform."""
    digests = [(f"{split} task set", task_set_digest(tasks_of(prepared.task_set(split), split))) for split in SPLITS]
    return [
        *run_environment.code_state().items(),
        ("parameters", parameters_digest(experiment)),
        *digests,
        ("demonstrations", prepared.demonstrations.digest),
        ("tokenizer", prepared.tokenizer.digest),
        ("warm start", prepared.warm_start.digest),
        ("report", report.digest),
        ("platform", json.dumps(run_environment.platform(), sort_keys=True)),
        (PROCESSES, f"{default_store().clock(report).get('processes', 1):.0f}"),
    ]
