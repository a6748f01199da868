"""The credit benchmark: how near every rule comes to the truth, over worlds, policies and stages of training.

    python -m lab.credit_benchmark               makes the studies that have no record, and draws the page
    python -m lab.credit_benchmark textcraft     makes that study again, whatever its record

`experiments/studies/credit.yaml` lists the studies; `docs/credit-study/data` has a record of each. Every stage is
cached, so that a night that was interrupted goes on. A rule of your own that is a variant of the overlays is judged
with the others, and has its row.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from pydantic import Field, TypeAdapter, ValidationError
from rich.console import Console

from flows.runtime.process_settings import prepare_process
from turnwise.config.messages import explain
from turnwise.config.overlays import read_yaml
from turnwise.config.schema import Section
from turnwise.credit_study.study import Study
from turnwise.credit_study.success import MEASURES
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.project import project_root
from turnwise.reporting.figures.drawing import INK, Figure
from turnwise.reporting.formatting import UNDEFINED, number, with_bounds
from turnwise.reporting.markdown import render
from turnwise.statistics import Interval
from turnwise.store.atomic_write import write_whole

PLAN = Path("experiments/studies/credit.yaml")
FOLDER = Path("docs/credit-study")
START = "start"


class PlannedStudy(Section):
    """One study: a world, a policy and a stage of its training."""

    policy: str
    """The policy that `policy.model` names."""
    stage: str = START
    """`start`, or the variant that the policy is trained with before, with the ablation's first seed."""
    warm_start: bool = False
    """Whether the policy is shown demonstrations before, as the overlays say."""
    overlays: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Files laid over params.yaml, from the project's root."""
    tasks: int | None = None
    replays: int | None = None
    critic_rollouts: int | None = None
    """Numbers of its own, as the benchmark's of these names; None: the benchmark's."""


class Benchmark(Section):
    """The studies, and how much is played in each."""

    tasks: int
    """Validation tasks."""
    replays: int
    """How often each state is played on."""
    critic_rollouts: int
    """Rollouts of training tasks that the critic learns from before its rules are judged."""
    studies: dict[str, PlannedStudy]

    def amounts(self, study: str) -> tuple[int, int, int]:
        """The tasks, replays and rollouts of the critic of a study."""
        own = self.studies[study]
        return (
            self.tasks if own.tasks is None else own.tasks,
            self.replays if own.replays is None else own.replays,
            self.critic_rollouts if own.critic_rollouts is None else own.critic_rollouts,
        )


class StudyRecord(Section):
    """What a study came to."""

    study: Study
    about: dict[str, str]
    """What it was made from, by name."""


Cells = Mapping[str, Mapping[str, Interval | None]]
"""By rule and study, a measure of closeness."""


def read_benchmark(path: Path) -> Benchmark:
    """The benchmark in a YAML file. Raises ConfigurationError if its content is not valid."""
    try:
        return Benchmark.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {explain(error, Benchmark)}") from None


def experiment_of(name: str, planned: PlannedStudy) -> Experiment:
    """The configuration of a study."""
    root = project_root()
    settings = {
        "policy.model": planned.policy,
        "warm_start.enabled": planned.warm_start,
        "ablation.name": f"credit-{name}",
    }
    return load(root / "params.yaml", [root / overlay for overlay in planned.overlays], settings)


def make_studies(names: Sequence[str] = ()) -> None:
    """Make the named studies, or all without a record, and draw the page after each.

    Raises ConfigurationError for an unknown name, before any compute.
    """
    plan, folder = read_benchmark(project_root() / PLAN), project_root() / FOLDER
    if unknown := [name for name in names if name not in plan.studies]:
        raise ConfigurationError(
            f"a study must be one of {', '.join(plan.studies)}; found {', '.join(unknown)}", "TW-unknown-study"
        )
    missing = [name for name in plan.studies if not _record_path(folder, name).is_file()]
    experiments = {name: experiment_of(name, plan.studies[name]) for name in names or missing}
    prepare_process()
    for name, experiment in experiments.items():
        record = _make_study(experiment, plan.studies[name].stage, *plan.amounts(name))
        write_whole(_record_path(folder, name), _RECORDS.dump_json(record, indent=1).decode() + "\n")
        Console().print(f"{name}: {record.about['study']}", highlight=False)
        draw_page(plan, folder)
    if not experiments:
        draw_page(plan, folder)


def _make_study(experiment: Experiment, stage: str, tasks: int, replays: int, critic_rollouts: int) -> StudyRecord:
    from flows.python.running import run
    from flows.runtime.flow_runs import ready_to_run, run_flow

    policy = None
    if stage != START:
        policy = run(experiment, stage)[0].artifacts.final_policy.digest
    ready_to_run(experiment, Console())
    from flows.credit_study import study_credit  # imports Prefect, which reads at import what it may log

    study_run = run_flow(study_credit, experiment, policy, tasks, replays, critic_rollouts=critic_rollouts)
    return StudyRecord(study=study_run.study, about=dict(study_run.about))


def draw_page(plan: Benchmark, folder: Path) -> None:
    """Write the page, the figure and the table as CSV from the records in a folder."""
    records = read_records(plan, folder)
    if not records:
        return
    cells = {measure: cells_of(records, measure) for measure in MEASURES}
    figure = heat_map(cells)
    write_whole(folder / f"{figure.name}.png", figure.png())
    write_whole(folder / "benchmark.md", page(plan, records, cells, figure))


def read_records(plan: Benchmark, folder: Path) -> dict[str, StudyRecord]:
    """The records of the plan's studies, in its order; studies without a record are left out."""
    paths = {name: _record_path(folder, name) for name in plan.studies}
    return {
        name: _RECORDS.validate_json(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()
    }


def cells_of(records: Mapping[str, StudyRecord], measure: str) -> Cells:
    """A measure by rule and study, for every rule that a study judges, nearest to the truth over worlds first."""
    cells: dict[str, dict[str, Interval | None]] = {}
    for name, record in records.items():
        for rule in record.study.figures[1:]:
            cells.setdefault(rule.title, {})[name] = MEASURES[measure](rule)
    means = {rule: over_worlds(rule_cells, worlds_of(records)) for rule, rule_cells in cells.items()}
    return dict(sorted(cells.items(), key=lambda item: 2.0 if (mean := means[item[0]]) is None else -mean.value))


def worlds_of(records: Mapping[str, StudyRecord]) -> dict[str, str]:
    """The world of each study."""
    return {name: record.about["world"] for name, record in records.items()}


def over_worlds(rule_cells: Mapping[str, Interval | None], worlds: Mapping[str, str]) -> Interval | None:
    """The mean of a rule's measure over worlds, of each the mean over its studies that have a value.

    `worlds` names the world of each study. Studies are fixed, and their tasks vary. Those of a world share its tasks,
    so that their errors add; worlds are independent, and bounds are recovered from theirs (Zou & Donner 2008):

        low = mean - sqrt(sum over worlds (mean over its studies (x - low of x))^2) / worlds, and high likewise

    None where no study has a value, and no bounds where one of them has none.
    """
    intervals = {name: each for name, each in rule_cells.items() if each is not None}
    if not intervals:
        return None
    by_world: dict[str, list[Interval]] = {}
    for name, each in intervals.items():
        by_world.setdefault(worlds[name], []).append(each)
    mean = math.fsum(fmean(each.value for each in studies) for studies in by_world.values()) / len(by_world)
    low = high = None
    bounded = [
        [(x.value - x.low, x.high - x.value) for x in studies if x.low is not None and x.high is not None]
        for studies in by_world.values()
    ]
    if sum(map(len, bounded)) == len(intervals):
        below, above = ([fmean(pair[side] for pair in pairs) for pairs in bounded] for side in (0, 1))
        low, high = mean - math.hypot(*below) / len(by_world), mean + math.hypot(*above) / len(by_world)
    return Interval(mean, low, high, "tasks", sum(each.count for each in intervals.values()))


def heat_map(cells: Mapping[str, Cells]) -> Figure:
    """Rules by studies, a panel for each measure below the other: the nearer to the truth, the darker."""
    measures = ("rank correlation", "right signs", "cosine")
    rules = list(cells[measures[0]])
    studies = list(dict.fromkeys(name for rule_cells in cells[measures[0]].values() for name in rule_cells))

    def draw(legend: bool) -> Drawing:
        drawing = Drawing(
            figsize=(2.2 + 0.34 * len(studies), len(measures) * (0.2 * len(rules) + 0.4) + 1.6),
            layout=ConstrainedLayoutEngine(h_pad=0.06),
        )
        for axes, measure in zip(drawing.subplots(len(measures), sharex=True), measures, strict=True):
            values = np.full((len(rules), len(studies)), np.nan)
            for row, rule in enumerate(rules):
                for column, study in enumerate(studies):
                    if (interval := cells[measure][rule].get(study)) is not None:
                        values[row, column] = interval.value
                        colour = "white" if interval.value > 0.6 else INK
                        axes.text(
                            column, row, number(interval.value, 1), ha="center", va="center", color=colour, fontsize=6.5
                        )
            axes.imshow(values, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
            axes.set_xticks(range(len(studies)), studies, rotation=90)
            axes.set_yticks(range(len(rules)), rules, color=INK)
            axes.grid(False)
            axes.set_title({"rank correlation": "ranks within a state"}.get(measure, measure))
        return drawing

    return Figure(
        "benchmark",
        "How near each credit rule comes to the true advantages in each study: ranks in a state, signs, gradient.",
        ("rule", "study", *measures),
        [
            (
                rule,
                study,
                *(None if (interval := cells[m][rule].get(study)) is None else interval.value for m in measures),
            )
            for rule in rules
            for study in studies
        ],
        draw,
    )


def page(plan: Benchmark, records: Mapping[str, StudyRecord], cells: Mapping[str, Cells], figure: Figure) -> str:
    """The page in Markdown."""
    about = [
        (
            f"`{name}`",
            record.about["world"],
            plan.studies[name].policy,
            "start" if plan.studies[name].stage == START else f"after `{plan.studies[name].stage}`",
            *plan.amounts(name),
            record.about["success of the episodes"],
            record.study.turns,
            number(record.study.error_of_no_credit, 2),
            UNDEFINED if record.study.reliability is None else f"{record.study.reliability:.0%}",
            f"`{record.about['study'].removeprefix('credit_study/')[:8]}`",
        )
        for name, record in records.items()
    ]
    worlds = worlds_of(records)
    everywhere = {
        rule: {measure: over_worlds(cells[measure][rule], worlds) for measure in MEASURES}
        for rule in cells["rank correlation"]
    }
    return render(
        "lab",
        "credit-benchmark.md.jinja",
        plan=plan,
        figure=figure,
        about=about,
        missing=[name for name in plan.studies if name not in records],
        over_worlds=[
            (
                rule,
                len({worlds[name] for name, each in cells["rank correlation"][rule].items() if each is not None}),
                sum(each is not None for each in cells["rank correlation"][rule].values()),
                *(with_bounds(each, 2) for each in rule_means.values()),
            )
            for rule, rule_means in everywhere.items()
        ],
        measures=list(MEASURES),
        tables={
            measure: (
                ["rule", *records],
                [
                    (
                        rule,
                        *(with_bounds(rule_cells.get(name), 2) for name in records),
                    )
                    for rule, rule_cells in cells[measure].items()
                ],
            )
            for measure in MEASURES
        },
        left_out={
            title: sorted(
                {record.study.left_out[title] for record in records.values() if title in record.study.left_out}
            )
            for title in dict.fromkeys(title for record in records.values() for title in record.study.left_out)
        },
    )


def _record_path(folder: Path, name: str) -> Path:
    return folder / "data" / f"{name}.json"


_RECORDS = TypeAdapter(StudyRecord)

if __name__ == "__main__":
    make_studies(sys.argv[1:])
