"""Recomputation of pruned files: from the nearest ancestors that are complete, by the stages that made them.

The provenance of every artifact says which stage made it, with which parameters, from which inputs. The steps back to
complete artifacts are found first and then run in order, however long the chain is; each must give the same digest as
before. Intermediate artifacts are pruned again as soon as no further step reads them.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise import progress
from turnwise.errors import ArtifactError
from turnwise.store.artifacts import Store
from turnwise.store.manifest import Reference
from turnwise.store.notes import references_in
from turnwise.store.pruning import reading

logger = logging.getLogger(__name__)

Record = Mapping[str, Any]
"""Provenance of an artifact, one way in which it was made: see `Store.lineage`."""


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One artifact to recompute, and the record of how it was made."""

    reference: Reference
    record: Record

    @property
    def inputs(self) -> set[Reference]:
        """The artifacts that it is made from."""
        return {each for _, each in references_in(self.record["inputs"])}


def make_again(
    store: Store,
    wanted: Reference,
    files: Sequence[str],
    compute: Callable[[Record], Reference],
    difference: Callable[[Record], str],
) -> None:
    """Recompute these pruned files of an artifact and put them back.

    Args:
        compute: runs the stage of a record, bypassing the cache, and returns the artifact that it wrote.
        difference: describes how code and platform differ from those of the record; empty where they do not.

    Raises:
        ArtifactError: an ancestor is missing, or a step gives another digest than before.
    """
    steps = steps_to(store, wanted)
    logger.warning(
        "%s of %s %s pruned and %s needed: made again in %d %s",
        ", ".join(files),
        wanted,
        *(("was", "is") if len(files) == 1 else ("were", "are")),
        len(steps),
        "step" if len(steps) == 1 else "steps",
    )
    # What is made on the way is as large as what retention had removed, so each goes again after its last use.
    last_use = {each: place for place, step in enumerate(steps) for each in step.inputs}
    pruned = {step.reference: _list_pruned(store, step.reference) for step in steps}
    for place, step in enumerate(steps):
        progress.report("making pruned files again", place, len(steps))
        # Protected from a pruner in another process until it is read; `restoring` keeps other pruned files away.
        with reading(), store.restoring(step.reference, files if step.reference == wanted else pruned[step.reference]):
            output = compute(step.record)
        if output != step.reference:
            cause = difference(step.record) or (
                "its code and the platform are the same, so what it computes does not repeat"
            )
            raise ArtifactError(
                f"what was pruned must come out as it was when it is made again; the stage {step.record['stage']} made "
                f"{output} where it had made {step.reference}: {cause}. Use the code and the machine that made it, or "
                f"delete {store.root / step.reference.kind / step.reference.digest} and run the experiment again, "
                "which computes this and what follows",
                "TW-remade-otherwise",
            )
        for done in (each for each in step.inputs & pruned.keys() if last_use[each] == place):
            store.prune(done, pruned[done])
    progress.report("making pruned files again", len(steps), len(steps))


def steps_to(store: Store, wanted: Reference) -> list[RecordedStep]:
    """The steps that make an artifact complete, in the order in which to run them; `wanted` is the last.

    Searches backwards from `wanted`, breadth first, stopping at complete artifacts; then runs forwards from the steps
    whose inputs are all complete. Steps that `wanted` does not need are dropped.

    Raises:
        ArtifactError: an ancestor is neither complete nor recomputable from what the store records.
    """
    waiting: dict[Reference, list[tuple[RecordedStep, set[Reference]]]] = defaultdict(list)
    ready: deque[RecordedStep] = deque()
    origins: list[Reference] = []
    seen, to_see = {wanted}, deque([wanted])
    while to_see:
        reference = to_see.popleft()
        ways = [RecordedStep(reference, record) for record in store.lineage(reference).values()]
        if not ways:
            origins.append(reference)
        for step in ways:
            missing = {each for each in step.inputs if each in seen or not _is_whole(store, each)}
            # Sorted: the order of a set differs between processes, and the steps would run in another one.
            to_see.extend(each for each in sorted(missing - seen, key=str))
            seen |= missing
            if not missing:
                ready.append(step)
            for each in missing:
                waiting[each].append((step, missing))
    steps: dict[Reference, RecordedStep] = {}
    while ready and wanted not in steps:
        step = ready.popleft()
        if step.reference in steps:
            continue
        steps[step.reference] = step
        for other, missing in waiting[step.reference]:
            missing.discard(step.reference)
            if not missing:
                ready.append(other)
    if wanted not in steps:
        raise ArtifactError(
            f"what an artifact was made from must be there to make it again; {wanted} came from "
            f"{', '.join(map(str, origins)) or 'itself'}, of which the store {store.root} holds neither the files nor "
            "how to make them: run the experiment again",
            "TW-origin-lost",
        )
    return _leading_to(wanted, steps)


def _leading_to(wanted: Reference, steps: Mapping[Reference, RecordedStep]) -> list[RecordedStep]:
    """The steps that `wanted` needs, of those in `steps`, in the same (runnable) order."""
    needed, to_see = {wanted}, [wanted]
    while to_see:
        for each in steps[to_see.pop()].inputs & steps.keys() - needed:
            needed.add(each)
            to_see.append(each)
    return [step for reference, step in steps.items() if reference in needed]


def _is_whole(store: Store, reference: Reference) -> bool:
    try:
        store.manifest(reference)
    except ArtifactError:
        return False
    return not store.pruned(reference)


def _list_pruned(store: Store, reference: Reference) -> list[str]:
    """The pruned files of an artifact; empty where the artifact is missing altogether."""
    try:
        return store.pruned(reference)
    except ArtifactError:
        return []
