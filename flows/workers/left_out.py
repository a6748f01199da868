"""The runs that a fault has left out of an ablation or a sweep: what is reported of them, and when that is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flows.run_state import Run
from turnwise.data.outcomes import LeftOut
from turnwise.errors import TrainingEnded


def divided(outcomes: Mapping[tuple[str, int], Run | TrainingEnded]) -> tuple[list[Run], list[LeftOut]]:
    """The runs that count, also those that were ended early, and those that a fault has left out; by variant and seed.

    Raises:
        TrainingEnded: a fault has left out every run.
    """
    runs = [each for each in outcomes.values() if isinstance(each, Run)]
    left_out = [
        LeftOut(variant=variant, seed=seed, by=each.fault, message=str(each))
        for (variant, seed), each in outcomes.items()
        if isinstance(each, TrainingEnded)
    ]
    if not runs:
        require_none(left_out)
    return runs, left_out


def require_none(left_out: Sequence[LeftOut]) -> None:
    """Raise TrainingEnded, with what each message says, unless no run was left out."""
    if left_out:
        raise TrainingEnded(said_of(left_out))


def said_of(left_out: Sequence[LeftOut]) -> str:
    """What is said of runs that a fault has left out; empty where there are none."""
    if not left_out:
        return ""
    names = ", ".join(f"{each.name} ({each.by})" for each in left_out)
    messages = "\n".join(each.message for each in left_out)
    return (
        f"every run must be sound to count; left out by a fault: {names}. What they had made is kept, and what is "
        f"reported is over the others. Change what the messages say, and run all of them again.\n{messages}"
    )
