"""The process's one learner, remembered by the digest of the policy that it holds."""

from __future__ import annotations

from turnwise.artifacts import Reference, default_store
from turnwise.policy.learner import OPTIMIZER_FILE, Learner
from turnwise.sections import Compute

_resident: dict[tuple[Reference, Compute], Learner] = {}


def take_learner(policy: Reference, compute: Compute) -> Learner:
    """The learner that holds this policy and its optimizer's state, from memory or from the store.

    It is no longer remembered: whoever changes it says under which policy it is to be found again (`keep_learner`), so
    that a failure in between leaves nothing half-trained behind.
    """
    learner = _resident.pop((policy, compute), None)
    if learner is not None:
        return learner
    _resident.clear()
    folder = default_store().folder(policy)
    make = Learner.restore if (folder / OPTIMIZER_FILE).exists() else Learner
    return make(folder, device=compute.device, threads=compute.learner_threads)


def keep_learner(policy: Reference, compute: Compute, learner: Learner) -> None:
    """Remember a learner under the policy that it now holds."""
    _resident.clear()
    _resident[policy, compute] = learner
