"""A run of an ablation as a flow run of Prefect, within that of the ablation, whichever process makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flows.runtime.flow_runs import flow_run, part_of, tags_of
from turnwise.experiment import Experiment

Made = TypeVar("Made")


def in_own_flow_run(
    experiment: Experiment, variant: str, seed: int, make: Callable[[], Made], within: str | None = None
) -> Made:
    """What `make` returns, as a flow run that is tagged with the ablation, the variant and the seed.

    Args:
        experiment: the ablation.
        variant: the variant's name.
        seed: the seed.
        make: makes the run.
        within: the id of the ablation's flow run, where that is in another process.
    """

    @flow_run("run", "{variant} seed {seed}", tags_of({"experiment": experiment}))
    def run(variant: str, seed: int) -> Made:
        return make()

    with part_of(within):
        return run(variant, seed)
