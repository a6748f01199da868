"""The exceptions that Turnwise raises on purpose, and how each kind of failure is handled.

* A bad reply of the policy is **data**: the agent answers it with a text, and nothing is raised.
* A lost world is **missing data**: `WorldLost`; the episode is retried, then left out and counted, never scored 0.
* A world or a function of one's own that answers what its contract does not allow has a **mistake**: `ContractError`
  stops the run. It is no missing data: episodes left out for what they answered would bias what is left.
* A wrong configuration is **refused** before any compute: `ConfigurationError`.
* A missing or damaged artifact is **recomputed, with a message**: `ArtifactError`.
* A full disk is **retried** like other external failures, then reported in one sentence: `DiskFull`.
* A shared store that does not answer is **waited for**, then the run stops in one sentence: `StoreUnreachable`;
  so is the database behind MLflow: `TrackingUnreachable`.
* A lost process of the learner or of an engine is **replaced**, as other external failures are retried: `LearnerLost`,
  `EngineLost`.
* A mismatch between engine and learner **stops** the run: `MismatchError`; so does a value that is not finite:
  `NotFiniteError`. Such a fault **leaves the run out** of what is reported: `TrainingEnded`, which names the last good
  policy.
* A run that can no longer learn is **an outcome**, and raises nothing: a guard or an alarm ends it, and its policy is
  tested (`turnwise.data.outcomes`).
* Anything else is a bug, and is raised unchanged.

Every message states what must hold, what was found and what to do, and ends with a code that names the mistake,
`[TW-repeated-seeds]`: for users to search for, and for tests to match, so that the wording can change. The same mistake
has the same code wherever it is met. Functions of the library raise a plain ValueError, without a code, for arguments
that only a programmer's mistake can give them.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

_LIBRARIES = (
    Path(sysconfig.get_path("stdlib")),
    *(Path(__file__).parents[1] / package for package in ("turnwise", "tasks", "flows")),
)


def raised_at(error: BaseException) -> str | None:
    """`file:line` of the user's own code in which the error was raised: the innermost place that is neither Turnwise's
    nor that of Python or of an installed package. None where no such code was under way.
    """
    for place in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(place.filename)
        is_installed = {"site-packages", "dist-packages"} & set(file.parts) or any(map(file.is_relative_to, _LIBRARIES))
        if file.is_absolute() and not is_installed:
            return f"{file}:{place.lineno}"
    return None


def first_line(error: object) -> str:
    """The first line of what an error of another library says, without a full stop; its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), "").rstrip(".") or type(error).__name__


CODE = re.compile(r" \[(TW-[a-z0-9-]+)\]$", re.MULTILINE)
"""A code at the end of a line of a message."""


class TurnwiseError(Exception):
    """Base of every error that Turnwise raises on purpose.

    The code is part of the text, and so stays with it in processes, records and errors that repeat it.
    """

    def __init__(self, message: str = "", code: str = "") -> None:
        """`code` is put behind the message, unless that repeats an error with a code, which is the more exact one.

        An error of a plug-in needs no code.
        """
        super().__init__(f"{message} [{code}]" if code and not CODE.search(message) else message)

    @property
    def code(self) -> str:
        """The code, such as `TW-repeated-seeds`; the first of a message of several lines, and empty without one."""
        match = CODE.search(str(self))
        return match[1] if match else ""

    @property
    def message(self) -> str:
        """The text without its codes."""
        return CODE.sub("", str(self))


class ConfigurationError(TurnwiseError, ValueError):
    """The parameters contradict themselves, or name something that does not exist."""


class ArtifactError(TurnwiseError, RuntimeError):
    """An artifact is missing from the store, or its content is not what its digest says."""


class DiskFull(TurnwiseError, OSError):
    """A result cannot be written: the disk is full, or the user's quota is used up."""


class StoreUnreachable(TurnwiseError, RuntimeError):
    """The shared store (`storage.url`) does not answer. The same command goes on from the last stored stage."""


class TrackingUnreachable(TurnwiseError, RuntimeError):
    """The database behind MLflow (`tracking.uri`) does not answer. The same command goes on from the last stage."""


class WorldLost(TurnwiseError, RuntimeError):
    """A world raised, hung or diverged on replay more often than the retries allow; the episode is missing data."""


class ContractError(TurnwiseError, ValueError):
    """A world, a server or a function of one's own answered what its contract does not allow, e.g. None as a reward."""


class RewardMissing(TurnwiseError, RuntimeError):
    """A reward could not be determined, e.g. because a judge did not answer; the episode is missing data."""


class MismatchError(TurnwiseError, RuntimeError):
    """The learner's log-probabilities differ from those that the engine sampled with, e.g. because of stale weights."""


class NotFiniteError(TurnwiseError, FloatingPointError):
    """A loss, a gradient or a weight is infinite or not a number."""


class LearnerLost(TurnwiseError, OSError):
    """One of the processes that train a policy together has died or does not answer: `compute.learner_processes`."""


class EngineLost(TurnwiseError, OSError):
    """One of the processes that sample a rollout has died: `compute.engines`, `compute.tensor_parallel`."""


class TrainingEnded(TurnwiseError, RuntimeError):
    """A fault has ended a run, whose numbers cannot be trusted: it is left out of what is reported.

    Its artifacts stay, and the message names the last good policy. A run that a guard or an alarm ends for what it has
    learned, or has not, raises nothing: it is an outcome (`turnwise.data.outcomes`).
    """

    def __init__(self, message: str, code: str = "", fault: str = "") -> None:
        """`fault`: the guard that found it, `mismatch` or `not_finite`; empty where several runs are meant."""
        super().__init__(message, code)
        self.fault = fault


class CreditError(TurnwiseError, ValueError):
    """An advantage estimator lacks an input, or was asked for something that it does not define."""
