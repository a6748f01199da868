"""What the checker found."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass


class Broken(Exception):
    """The world does not keep its contract: what must hold and what was found."""


@dataclass(frozen=True)
class Check:
    """One property that a world must have: its name, whether it holds, and what was found."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class CheckReport:
    """Every check of one world, in the order in which they ran."""

    world: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether the world keeps its contract."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def lines(self) -> list[str]:
        """The report for the terminal: one line per check, and a verdict."""
        width = max(len(check.name) for check in self.checks)
        signs = {True: "ok    ", False: "FAILED"}
        rows = [f"{signs[check.passed]}  {check.name:<{width}}  {check.found}" for check in self.checks]
        kept = len(self.checks) - len(self.failed)
        verdict = "keeps its contract" if self.passed else "does not keep its contract"
        return [*rows, f"The world {self.world!r} {verdict}: {kept} of {len(self.checks)} checks passed."]


def examine(name: str, check: Callable[[], str]) -> Check:
    """Run one check. Whatever a world raises is a finding, said with the place where it was raised."""
    try:
        return Check(name, True, check())
    except Broken as broken:
        return Check(name, False, str(broken))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Check(name, False, f"raised {type(error).__name__}: {error} ({place.filename}:{place.lineno})")


def shortened(text: str) -> str:
    """A text as a finding quotes it."""
    return repr(text) if len(text) <= 60 else f"{text[:50]!r}... ({len(text)} characters)"
