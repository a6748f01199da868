"""What the process keeps in memory between stages: a learner, a critic and a reference policy, each by its digest."""

from __future__ import annotations

from turnwise.artifacts import Reference, default_store
from turnwise.policy.critic import Critic
from turnwise.policy.learner import OPTIMIZER_FILE, Learner
from turnwise.sections import Compute

_learners: dict[tuple[Reference, Compute], Learner] = {}
_critics: dict[tuple[Reference, Compute], Critic] = {}
_references: dict[tuple[Reference, Compute], Learner] = {}


def take_learner(policy: Reference, compute: Compute) -> Learner:
    """The learner that holds this policy and its optimizer's state, from memory or from the store.

    It is no longer remembered: whoever changes it says under which policy it is to be found again (`keep_learner`), so
    that a failure in between leaves nothing half-trained behind.
    """
    learner = _learners.pop((policy, compute), None)
    if learner is not None:
        return learner
    _learners.clear()
    folder = default_store().folder(policy)
    make = Learner.restore if (folder / OPTIMIZER_FILE).exists() else Learner
    return make(folder, device=compute.device, threads=compute.learner_threads)


def keep_learner(policy: Reference, compute: Compute, learner: Learner) -> None:
    """Remember a learner under the policy that it now holds."""
    _learners.clear()
    _learners[policy, compute] = learner


def reference_policy(policy: Reference, compute: Compute) -> Learner:
    """The policy that others are measured against. It is never trained, and stays in memory."""
    if (policy, compute) not in _references:
        _references.clear()
        folder = default_store().folder(policy)
        _references[policy, compute] = Learner(folder, device=compute.device, threads=compute.learner_threads)
    return _references[policy, compute]


def take_critic(critic: Reference, compute: Compute) -> Critic:
    """The critic with its optimizer's state, from memory or from the store; no longer remembered, as a learner is."""
    found = _critics.pop((critic, compute), None)
    if found is not None:
        return found
    _critics.clear()
    folder = default_store().folder(critic)
    return Critic.restore(folder, device=compute.device, threads=compute.learner_threads)


def keep_critic(critic: Reference, compute: Compute, judge: Critic) -> None:
    """Remember a critic under the artifact that it now is."""
    _critics.clear()
    _critics[critic, compute] = judge
