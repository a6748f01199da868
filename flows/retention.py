"""Retention of a run: after each iteration, whatever the section `storage` does not keep is pruned.

The inputs of this run's next stages are never touched. If another run still needs a pruned policy that both have made,
it is recomputed on request.
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
    """Prune what `storage` does not keep of a run's chains, once an iteration is over.

    Args:
        spared: artifacts that the run started from, which other runs start from too.
        whole: artifacts that an alarm may return the run to; kept complete.
        done: what has been kept of each artifact so far; updated in place.
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
