"""Making pruned files again: from the nearest ancestors that the store holds whole, by the stages that made them.

Every artifact's lineage says which stage made it, with which parameters, from which inputs. The steps back to what is
held whole are found first, and then taken in order, however long the chain is; each must give the digest that it gave
before. What is made on the way is pruned again as soon as no further step reads it.
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
from turnwise.store.inputs import references_in
from turnwise.store.manifest import Reference
from turnwise.store.pruning import reading

logger = logging.getLogger(__name__)

Record = Mapping[str, Any]
"""One way in which an artifact was made: see `Store.lineage`."""


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One artifact to make again, and the way to."""

    reference: Reference
    record: Record

    @property
    def inputs(self) -> set[Reference]:
        """What it is made from."""
        return {each for _, each in references_in(self.record["inputs"])}


def make_again(
    store: Store,
    wanted: Reference,
    files: Sequence[str],
    compute: Callable[[Record], Reference],
    difference: Callable[[Record], str],
) -> None:
    """Make these pruned files of an artifact again.

    Args:
        compute: calls the stage that a record tells of, without the cache, and returns what it wrote.
        difference: says what is different now from when the record was made; empty where nothing is.

    Raises:
        ArtifactError: what it was made from is missing, or comes out different.
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
    last_use = {each: place for place, step in enumerate(steps) for each in step.inputs}
    pruned = {step.reference: _pruned(store, step.reference) for step in steps}
    for place, step in enumerate(steps):
        progress.report("making pruned files again", place, len(steps))
        with reading(), store.restoring(step.reference, files if step.reference == wanted else pruned[step.reference]):
            made = compute(step.record)
        if made != step.reference:
            raise _different(store, step, made, difference(step.record))
        for done in (each for each in step.inputs & pruned.keys() if last_use[each] == place):
            store.prune(done, pruned[done])
    progress.report("making pruned files again", len(steps), len(steps))


def steps_to(store: Store, wanted: Reference) -> list[RecordedStep]:
    """What to make, in order, so that an artifact is there whole: as little as can be, `wanted` last.

    Raises:
        ArtifactError: something that it was made from is missing, and how that was made is not recorded.
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
            lacking = {each for each in step.inputs if each in seen or not _is_whole(store, each)}
            to_see.extend(each for each in sorted(lacking - seen, key=str))
            seen |= lacking
            if not lacking:
                ready.append(step)
            for each in lacking:
                waiting[each].append((step, lacking))
    made: dict[Reference, RecordedStep] = {}
    while ready and wanted not in made:
        step = ready.popleft()
        if step.reference in made:
            continue
        made[step.reference] = step
        for other, lacking in waiting[step.reference]:
            lacking.discard(step.reference)
            if not lacking:
                ready.append(other)
    if wanted not in made:
        raise ArtifactError(
            f"what an artifact was made from must be there to make it again; {wanted} came from "
            f"{', '.join(map(str, origins)) or 'itself'}, of which the store {store.root} holds neither the files nor "
            "how to make them: run the experiment again"
        )
    return _leading_to(wanted, made)


def _leading_to(wanted: Reference, made: Mapping[Reference, RecordedStep]) -> list[RecordedStep]:
    """Of the steps, in the order in which they can be taken, those that `wanted` needs."""
    needed, to_see = {wanted}, [wanted]
    while to_see:
        for each in made[to_see.pop()].inputs & made.keys() - needed:
            needed.add(each)
            to_see.append(each)
    return [step for reference, step in made.items() if reference in needed]


def _is_whole(store: Store, reference: Reference) -> bool:
    try:
        store.manifest(reference)
    except ArtifactError:
        return False
    return not store.pruned(reference)


def _pruned(store: Store, reference: Reference) -> list[str]:
    """What was pruned of an artifact; nothing where all of it is missing."""
    try:
        return store.pruned(reference)
    except ArtifactError:
        return []


def _different(store: Store, step: RecordedStep, made: Reference, difference: str) -> ArtifactError:
    return ArtifactError(
        f"what was pruned must come out as it was when it is made again; the stage {step.record['stage']} made "
        f"{made} where it had made {step.reference}: "
        f"{difference or 'its code and the platform are the same, so what it computes does not repeat'}. Use the code "
        f"and the machine that made it, or delete {store.root / step.reference.kind / step.reference.digest} and run "
        "the experiment again, which computes this and what follows anew"
    )
