"""Retention of a run: after each iteration, what the section `storage` does not keep is pruned.

Nothing that the next stages of this run read is touched. What another run still needs of policies that both have made
comes back when it asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tasks.rollout.evaluate import SAMPLED
from turnwise.config.schema import Storage
from turnwise.store import Reference, default_store
from turnwise.store.retention import Keep, Link, files_to_prune, kept


def prune_behind(
    chains: Sequence[Sequence[Link]],
    storage: Storage,
    spared: Collection[Reference],
    whole: Collection[Reference],
    done: dict[Reference, Keep],
) -> None:
    """Prune what a run need not keep of its chains, now that an iteration is over.

    Args:
        spared: what the run began with, which others begin with too.
        whole: what an alarm may make the run go back to.
        done: how much is left of what was looked at before; it grows.
    """
    stays: dict[Reference, Keep] = {}
    for chain in chains:
        for reference, keep in kept(chain, storage, success, whole).items():
            stays[reference] = max(keep, stays.get(reference, Keep.METRICS))
    for reference, keep in stays.items():
        if reference not in spared and done.get(reference) != keep:
            default_store().prune(reference, files_to_prune(reference.kind, keep))
            done[reference] = keep


def success(evaluation: Reference) -> float:
    """The mean success of an evaluation's sampled episodes."""
    return default_store().metrics(evaluation)[f"{SAMPLED}/success"]
