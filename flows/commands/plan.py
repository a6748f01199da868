"""`--dry-run`: counts what an ablation would compute, even on a machine that could not compute it.

The configuration is checked as for a real run, the world is made and its task sets are read or else drawn, where the
files that they are drawn from are there. No model is loaded and no token is sampled. The numbers are upper bounds:
episodes may end early, replies may be shorter than allowed, and what is cached is not recomputed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from flows.health import signal_at_start
from flows.plan import Plan, plan_ablation
from flows.prepare import draw_tasks
from flows.runtime.disk import PlannedRun, free_disk, needs_of, planned_run, require_budget
from tasks.calls import Unrecorded
from turnwise.config.runner import Runner
from turnwise.config.schema import Ablation
from turnwise.config.world_checks import missing_files
from turnwise.data.task_sets import draw_task_set, require_disjoint, task_set_digest, tasks_of
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.health.initial_signal import InitialSignal
from turnwise.policy.device_memory import device_bytes
from turnwise.policy.dimensions import Dimensions, dimensions_of
from turnwise.policy.memory_plan import GIB
from turnwise.policy.pretrained import asks_hub
from turnwise.records.record import tracking_uri
from turnwise.reporting.formatting import readable_bytes
from turnwise.reporting.terminal.tables import plain_table
from turnwise.store.default import nothing_is_stored
from turnwise.store.sqlite_files import sqlite_file
from turnwise.tracking.database import require_readable
from turnwise.training_runs.memory import MemoryPlan, crowded, fits, largest_plan, placement, remedies
from turnwise.training_runs.readiness import require_model
from turnwise.training_runs.state import task_set_parameters
from turnwise.world import SPLITS, Split, Task


def show_plan(experiment: Experiment, console: Console, processes: int | None = None) -> None:
    """Print the plan of an ablation. `processes` takes precedence over `compute.runner`.

    Raises ConfigurationError as a real run would.
    """
    require_model(experiment, thoroughly=False)
    if sqlite_file(uri := tracking_uri(experiment)) is not None:  # a server is not asked for a plan
        require_readable(uri)
    has_task_sets, playable = _show_task_sets(experiment, console), _show_playable(experiment, console)
    console.print(f"{'policy':<12}{_policy(experiment)}", soft_wrap=True)
    if experiment.suggested:
        values = ", ".join(
            f"{key} {value if isinstance(value, str) else format(value, 'g')}"
            for key, value in experiment.suggested.items()
        )
        console.print(f"{'suggested':<12}{values}, from the size of {experiment.policy.model} and this machine")
    # Where one would have to ask a hub for the policy, nothing is looked up.
    plan = plan_ablation(experiment, looks=has_task_sets and playable and not asks_hub(experiment.policy.model))
    for line in _start(plan) if has_task_sets and playable else []:
        console.print(f"{'start':<12}{line}")
    ablation = experiment.ablation
    console.print(f"\n{ablation.name}: for each of {_range(ablation)} seeds, at most\n")
    table = plain_table()
    # On a narrow terminal long names give way; numbers and headings do not.
    for heading in ("variant", "estimator"):
        table.add_column(heading, overflow="fold")
    for heading in ("episodes", "tokens", "steps", "evaluated"):
        table.add_column(heading, justify="right", no_wrap=True)
    runs = [planned_run(experiment, variant) for variant in experiment.ablation.variants]
    for run in runs:
        numbers = (run.episodes, run.reply_tokens, run.optimizer_steps, run.evaluated)
        table.add_row(run.variant, run.estimator, *(f"{each:,}" for each in numbers))
    console.print(table)
    console.print(
        "\nEpisodes are sampled in training; tokens are those of their replies; steps are the optimizer's; evaluated "
        "are episodes on the other task sets."
    )
    if with_critic := [run.variant for run in runs if run.critic]:
        console.print(f"A critic is trained, too, in {', '.join(with_critic)}.")
    for counts, variants in _by_stages(runs).items():
        console.print(f"Stages of {variants}: {counts}.")
    if recorded_stages := plan.recorded.total():
        console.print(f"Of all {len(plan.stages):,} stages {recorded_stages:,} are recorded already.")
    if ablation.budget is not None:
        require_budget(experiment, runs)
        console.print(f"Verdicts also at {ablation.budget.heading} of each run, on the validation task set.")
    runner = experiment.compute.runner.with_processes(processes)
    console.print(_who(runner, ablation))
    for place, models in placement(experiment.compute):
        console.print(f"On the {place}, of each run: {models}.")
    _show_needs(experiment, console, runner.processes)
    console.print("Nothing was computed.")


def _show_task_sets(experiment: Experiment, console: Console) -> bool:
    """Print the size and the digest of each task set, or which of the world's files is needed to draw them.

    Returns whether they could be drawn.
    """
    missing = missing_files(experiment.world)
    for path in missing.values():
        console.print(f"{'task sets':<12}not drawn before {path} is there", soft_wrap=True)
    if missing:
        return False
    task_sets = {split: _task_set(experiment, split) for split in SPLITS}
    require_disjoint(task_sets)
    for split, tasks in task_sets.items():
        console.print(f"{split:<12}{len(tasks)} tasks of {experiment.world.name}, {task_set_digest(tasks)}")
    return True


def _task_set(experiment: Experiment, split: Split) -> Sequence[Task]:
    """The tasks of a split: as they are recorded, or else drawn."""
    drawing = draw_tasks(experiment, split)
    reference = None if nothing_is_stored() else drawing.recorded()
    if reference is not None:
        return tasks_of(reference, split)
    return draw_task_set(experiment.made_world, split, task_set_parameters(experiment, split).tasks)


def _show_playable(experiment: Experiment, console: Console) -> bool:
    """Print which program is missing to play the world, and return whether none is."""
    try:
        experiment.require_programs()
    except ConfigurationError as error:
        console.print(f"{'playing':<12}not possible here: {error}", soft_wrap=True)
        return False
    return True


def recorded_signals(plan: Plan) -> dict[InitialSignal, list[str]]:
    """What the variants could learn from at first, each with the names of the variants of which it holds.

    Empty where the policy that they start from has not been evaluated.
    """
    signals: dict[InitialSignal, list[str]] = {}
    for run in plan.runs:
        start = run.start_at_horizon or run.start
        if run.seed == plan.experiment.ablation.all_seeds[0] and not isinstance(start, Unrecorded):
            signal = signal_at_start(plan.experiment.variant(run.variant), start)
            if signal is not None:
                signals.setdefault(signal, []).append(run.variant)
    return signals


def _start(plan: Plan) -> Iterator[str]:
    """What is known of the policy that reinforcement starts from, and a warning where that gives it no beginning."""
    experiment = plan.experiment
    policy = "the untrained policy" if experiment.policy.model == "scratch" else experiment.policy.model
    start = "the warm start" if experiment.warm_start.enabled else policy
    signals = recorded_signals(plan)
    if not signals:
        yield f"not known yet: {start} is evaluated on the validation tasks before training begins"
        return
    for signal, variants in signals.items():
        subject = start if len(signals) == 1 else f"{start} of {', '.join(variants)}"
        yield f"warning, {subject}: {signal.warning()}" if signal.is_missing else f"{subject}: {signal.found()}"


def _range(ablation: Ablation, each: int = 1) -> str:
    """How many seeds there are, or runs with `each` of them: `5`, or `3 to 20` where they are added until decided."""
    rule, most = ablation.until, each * len(ablation.all_seeds)
    return f"{most}" if rule is None else f"{each * rule.first} to {most}"


def _who(runner: Runner, ablation: Ablation) -> str:
    """Who makes the runs, and how many there are."""
    runs = _range(ablation, len(ablation.variants))
    if runner.kind == "ray":
        memory = f", {runner.memory_gib:g} GiB" if runner.memory_gib else ""
        each = f"{runner.cores:g} cores, {runner.cards:g} cards{memory}"
        return f"Runs: {runs}, made by the Ray cluster at {runner.address}, each with {each}."
    sharing = min(runner.processes, ablation.runs_at_once)
    if sharing == 1:
        return f"Runs: {runs}, made by this process, one after the other."
    return f"Runs: {runs}, shared by {sharing} processes of this machine."


def _by_stages(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """The variants that run the same stages equally often, by these stages."""
    variants = defaultdict(list)
    for run in runs:
        variants[", ".join(f"{name} {count:,}" for name, count in run.stages.items())].append(run.variant)
    return {counts: ", ".join(names) for counts, names in variants.items()}


def _show_needs(experiment: Experiment, console: Console, processes: int) -> None:
    needs, dimensions = needs_of(experiment, processes), dimensions_of(experiment.policy)
    if needs is None or dimensions is None:
        console.print(
            f"Disk and memory: not known before the configuration of {experiment.policy.model} is on this machine: hf "
            f"download {experiment.policy.model} config.json"
        )
        return
    policies, episodes, records, free = map(
        readable_bytes, (needs.policies + needs.next_policy, needs.episodes, needs.records, free_disk())
    )
    console.print(
        f"Disk: {readable_bytes(needs.disk)} at most ({policies} policies, {episodes} episodes, {records} records); "
        f"{free} are free. docs/storage.md says how it is estimated."
    )
    show_memory(experiment, dimensions, processes, console)


def _policy(experiment: Experiment) -> str:
    policy, compute = experiment.policy, experiment.compute
    if policy.model == "scratch":
        model = f"from scratch, {policy.layers} layers of width {policy.hidden}"
    else:
        model = policy.model if policy.revision is None else f"{policy.model} at {policy.revision}"
    return f"{model}, in {compute.precision} on {compute.device}, sampled by {compute.engine}"


VERDICTS = {True: "It fits.", False: "It does not fit, and would be refused.", None: "It may or may not fit."}


def show_memory(experiment: Experiment, dimensions: Dimensions, processes: int, console: Console) -> None:
    """Print the plan of the variant that takes the most; where it may not fit, also what to change."""
    device, running = experiment.compute.device, min(processes, experiment.ablation.runs_at_once)
    plan, available = largest_plan(experiment, dimensions), device_bytes(device)
    whose = f" (the variant that takes the most: {plan.variant})" if len(experiment.ablation.variants) > 1 else ""
    several = experiment.compute.cards > 1
    card = "the first card of each run" + (", and of one of its engines" if experiment.compute.engines_apart else "")
    subject = card if several and device != "cpu" else f"each {'run' if several else 'process'}"
    where = "" if several and device != "cpu" else f" on the {device}"
    console.print(f"Memory of {subject}{where}, in GiB{whose}:\n")
    console.print(_table(plan))
    peak = plan.peak.bytes
    needed = f"\n{running} processes take {_gib(running * peak)}" if running > 1 else f"\nThe peak is {_gib(peak)}"
    if available is None:
        console.print(f"{needed} GiB. This machine has no card to compare it with.")
    else:
        verdict = fits(running * peak, available)
        console.print(f"{needed} of {_gib(available)} GiB. {VERDICTS[verdict]}")
        if verdict:
            if warning := crowded(experiment, processes):
                console.print(f"Now {warning}.")
            return
    offered = remedies(experiment, dimensions)
    if offered:
        console.print("The peak of a process with other settings, in GiB:")
    for remedy in offered:
        console.print(f"{_gib(remedy.peak):>8}  {remedy.options}", soft_wrap=True)


def _table(plan: MemoryPlan) -> Table:
    """One row for each part, one column for each phase, and the sums."""
    table = plain_table(show_footer=True)
    names = list(dict.fromkeys(name for phase in plan.phases for name in phase.parts))
    table.add_column("", "in all", no_wrap=True)
    for phase in plan.phases:
        table.add_column(phase.name, _gib(phase.bytes), justify="right", no_wrap=True)
    for name in names:
        sizes = [phase.parts.get(name) for phase in plan.phases]
        table.add_row(name, *("–" if size is None else _gib(size) for size in sizes))
    return table


def _gib(size: int) -> str:
    return f"{size / GIB:,.2f}"
