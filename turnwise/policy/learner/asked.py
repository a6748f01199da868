"""What a process asks of the processes that train a policy together: see `turnwise.policy.learner.processes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Held:
    """Stands for an object that the processes hold."""

    number: int


@dataclass(frozen=True)
class Asked:
    """What all processes are asked for: to make an object, or to call a method of one."""

    forgotten: tuple[int, ...]
    """Objects that are no longer needed."""
    made: int | None
    """The number of the object to make; None: call a method."""
    path: str
    """`learner.restore` makes a learner; `3.critic.values` calls the critic of object 3."""
    arguments: tuple[Any, ...]
    named: dict[str, Any]
