"""The memory plan in the terminal: what is in memory in each phase, whether it fits, and what to change."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from flows.needs.fitting import fits, processes_with_runs, remedies
from flows.needs.memory import MemoryPlan, largest_plan
from turnwise.experiment import Experiment
from turnwise.policy.device_memory import device_bytes
from turnwise.policy.dimensions import Dimensions
from turnwise.policy.memory_plan import GIB

VERDICTS = {True: "It fits.", False: "It does not fit, and would be refused.", None: "It may or may not fit."}


def show_memory(experiment: Experiment, dimensions: Dimensions, processes: int, console: Console) -> None:
    """Print the plan of the variant that takes the most; where it may not fit, also what to change."""
    device, running = experiment.compute.device, processes_with_runs(experiment, processes)
    plan, available = largest_plan(experiment, dimensions), device_bytes(device)
    whose = f" (the variant that takes the most: {plan.variant})" if len(experiment.ablation.variants) > 1 else ""
    several = experiment.compute.cards > 1
    card = "the first card of each run" + (", and of one of its engines" if experiment.compute.engines_apart else "")
    of = card if several and device != "cpu" else f"each {'run' if several else 'process'}"
    where = "" if several and device != "cpu" else f" on the {device}"
    console.print(f"Memory of {of}{where}, in GiB{whose}:\n", highlight=False)
    console.print(_table(plan))
    peak = plan.peak.bytes
    needed = f"\n{running} processes take {_gib(running * peak)}" if running > 1 else f"\nThe peak is {_gib(peak)}"
    if available is None:
        console.print(f"{needed} GiB. This machine has no card to compare it with.", highlight=False)
    else:
        verdict = fits(running * peak, available)
        console.print(f"{needed} of {_gib(available)} GiB. {VERDICTS[verdict]}", highlight=False)
        if verdict:
            return
    offered = remedies(experiment, dimensions)
    if offered:
        console.print("The peak of a process with other settings, in GiB:", highlight=False)
    for remedy in offered:
        console.print(f"{_gib(remedy.peak):>8}  {remedy.options}", highlight=False, soft_wrap=True)


def _table(plan: MemoryPlan) -> Table:
    """One row for each part, one column for each phase, and the sums."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True)
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
