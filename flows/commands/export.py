"""`turnwise export`: a recorded run's policy in Hugging Face's layout, with a card that says where it came from.

turnwise export "mt-grpo seed 1" --to policies/mt-grpo                 the policy that the run ended with
turnwise export "mt-grpo seed 1" --best --to policies/mt-grpo          the one with the most success in validation
turnwise export "mt-grpo seed 1" --iteration 0 --to policies/start     the warm start
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from flows.python.recorded import runs
from flows.recording.exported_policy import require_empty, require_one_choice


def export_run(wanted: str, iteration: int | None, best: bool, to: Path, tracking: str | None) -> None:
    """Write the policy of one run into the folder `to`, and print where it is and how to serve it.

    `iteration` counts updates, 0 is the warm start, None the final policy; `best` takes the evaluated iteration with
    the most success in validation. Raises ConfigurationError where `wanted` names several runs, the run has no such
    iteration, or `to` is not empty.
    """
    to = to.absolute()
    require_one_choice(iteration, best)
    require_empty(to)
    found = runs(wanted, tracking=tracking)
    policy = found.export(to, iteration=iteration, best=best)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{policy} of {found.one.name} in {to}")
    console.print(f"serve it: vllm serve {to} --host 127.0.0.1; train on: policy.model={to}")
