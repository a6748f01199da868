"""The vocabulary of failures.

* A bad reply of the policy is **data**: the agent answers it with a text, and nothing is raised.
* A lost world is **missing data**: `WorldLost`; the episode is tried again, then left out and counted, never scored 0.
* A wrong configuration is **refused** before any compute: `ConfigurationError`.
* A missing or damaged artifact is **computed again, loudly**: `ArtifactError`.
* A full disk is **tried again**, as what breaks outside is, and then told in one sentence: `DiskFull`.
* Engine and learner that disagree are **stopped**: `MismatchError`; so is what is no number: `NotFiniteError`.
* A run that cannot learn any more, or must not go on, is **ended**: `TrainingEnded`, which names the last good policy.
* Anything else is a bug, and is raised as it is.

Every message states what must hold, what was found and what to do.
"""

from __future__ import annotations


class TurnwiseError(Exception):
    """Base of every error that Turnwise raises on purpose."""


class ConfigurationError(TurnwiseError, ValueError):
    """The parameters contradict themselves, or name something that does not exist."""


class ArtifactError(TurnwiseError, RuntimeError):
    """An artifact is missing from the store, or its content is not what its digest says."""


class DiskFull(TurnwiseError, OSError):
    """What was computed cannot be written: the disk has no room left, or the user's quota is used up."""


class WorldLost(TurnwiseError, RuntimeError):
    """A world raised, hung or diverged on replay more often than the retries allow: the episode is missing data."""


class MismatchError(TurnwiseError, RuntimeError):
    """The learner's log-probabilities are not those that the engine sampled with: something is stale."""


class NotFiniteError(TurnwiseError, FloatingPointError):
    """A loss, a gradient or a weight is infinite or not a number."""


class TrainingEnded(TurnwiseError, RuntimeError):
    """A guard or an alarm has ended a run. What was made before stays, and the message says which policy is good."""


class CreditError(TurnwiseError, ValueError):
    """An advantage estimator lacks an input, or was asked for something it does not define."""
