"""The checker's result types, and running one check."""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.errors import ContractError, raised_at

LEAST_COLUMNS = 24
"""Of what a check has found, however narrow the terminal is."""


class Broken(Exception):
    """Raised by a check that fails. The message says what must hold and what was found."""


class NotApplicable(Exception):
    """Raised by a check that cannot apply. The message says what the subject lacks."""


class Doubtful(Exception):
    """Raised by a check that the subject passes with a warning: it keeps the contract, but may be of little use."""


@dataclass(frozen=True)
class Check:
    """The result of one check: its name, whether it passed, and what was found."""

    name: str
    passed: bool
    found: str
    applies: bool = True
    """False if the subject lacks what the check looks at; such a check counts as passed."""
    doubtful: bool = False
    """Whether `found` is a warning; such a check counts as passed."""

    @property
    def sign(self) -> str:
        """The result in a word, as the report shows it: `ok`, `warn`, `FAILED`, or `-` where it does not apply."""
        if not self.applies:
            return "-"
        if not self.passed:
            return "FAILED"
        return "warn" if self.doubtful else "ok"


@dataclass(frozen=True)
class CheckReport:
    """The results of all checks of one subject, in the order in which they ran."""

    name: str
    checks: tuple[Check, ...]
    what: str = "world"
    """What it is: a world, a credit rule or a reward."""

    @property
    def passed(self) -> bool:
        """Whether it keeps its contract."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def lines(self, columns: int | None = None) -> list[str]:
        """The report for the terminal: one line per check, and a verdict. What failed is written out once.

        With `columns`, the terminal's width, what was found is wrapped beside the name of its check.
        """
        width = max(len(check.name) for check in self.checks)
        rows, seen = [], set()
        for check in self.checks:
            again = not check.passed and check.found in seen
            head = f"{check.sign:<6}  {check.name:<{width}}  "
            text = "the same" if again else check.found
            if columns is not None and "\n" not in text:
                room = max(columns - len(head), LEAST_COLUMNS)
                text = f"\n{' ' * len(head)}".join(textwrap.wrap(text, room))
            rows.append(head + text)
            seen.add(check.found)
        applicable = [check for check in self.checks if check.applies]
        passes = len(applicable) - len(self.failed)
        verdict = "keeps its contract" if self.passed else "does not keep its contract"
        left_out = len(self.checks) - len(applicable)
        note = f", {left_out} do{'es' if left_out == 1 else ''} not apply" if left_out else ""
        note += f", {doubtful} with a warning" if (doubtful := sum(check.doubtful for check in applicable)) else ""
        return [*rows, f"The {self.what} {self.name!r} {verdict}: {passes} of {len(applicable)} checks passed{note}."]


def examine(name: str, check: Callable[[], str]) -> Check:
    """Run one check. Any exception of the subject becomes a finding, with the file and line of its code."""
    try:
        return Check(name, True, check())
    except NotApplicable as reason:
        return Check(name, True, f"does not apply: {reason}", applies=False)
    except Doubtful as doubt:
        return Check(name, True, str(doubt), doubtful=True)
    except (Broken, ContractError) as broken:
        return Check(name, False, str(broken))
    except Exception as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        place = raised_at(error) or f"{innermost.filename}:{innermost.lineno}"
        return Check(name, False, f"raised {type(error).__name__}: {error} ({place})")


def shortened(text: str) -> str:
    """The text as quoted in a finding: its `repr`, cut after 50 characters if it has more than 60."""
    return repr(text) if len(text) <= 60 else f"{text[:50]!r}... ({len(text)} characters)"
