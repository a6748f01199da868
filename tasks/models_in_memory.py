"""Models kept in memory between stages: one learner, one critic and one reference policy, each by its digest.

With `compute.learner_processes` above 1 all three are held by the same processes, which stay as long as this one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tasks.restoring import opened
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.data.arrays import Ragged, Sequences
from turnwise.policy.engines.resident import rest_resident_engine
from turnwise.policy.learner.loading import load_critic, load_frozen_policy, load_learner
from turnwise.policy.model_files import MODEL_FILES
from turnwise.policy.pretrained import pretrained_folder, require_unchanged
from turnwise.policy.tokenizer import require_same_tokens
from turnwise.store import MANIFEST, Draft, Reference, default_store
from turnwise.store.outside import Outside

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from turnwise.policy.learner.contract import HeldCritic, HeldLearner
    from turnwise.policy.learner.processes import LearnerProcesses
    from turnwise.policy.scored_policy import ScoredPolicy


SCORING = ("turnwise.policy.adapted", "turnwise.policy.scored_policy")
"""The modules that compute log-probabilities, for cache keys."""
TRAINING = (
    "turnwise.policy.adapted",
    "turnwise.policy.learner.loading",
    "turnwise.policy.learner.worker",
    "turnwise.policy.model_files",
)
"""The modules that train a policy and a critic, for cache keys."""
POLICY, CRITIC = "policy 1", "critic 1"
"""The layout of their folders. It is in the cache key of who writes them: a changed layout gets another number."""

_learners: dict[tuple[Reference, LearnerParameters], HeldLearner] = {}
_critics: dict[tuple[Reference, LearnerParameters], HeldCritic] = {}
_references: dict[tuple[Reference, LearnerParameters], HeldLearner | ScoredPolicy] = {}
_teachers: dict[tuple[Outside, LearnerParameters], ScoredPolicy] = {}
_processes: list[LearnerProcesses] = []


def learner_processes(compute: Compute) -> LearnerProcesses | None:
    """The processes that train together; None for one. They are started where there are none any more."""
    if compute.learner_processes == 1:
        return None
    from turnwise.policy.learner.processes import LearnerProcesses

    if _processes and not (_processes[0].alive and _processes[0].size == compute.learner_processes):
        for models in (_learners, _critics, _references):
            models.clear()
        _processes.pop().close()
    if not _processes:
        _processes.append(LearnerProcesses(compute.learner_processes, device=compute.device))
    return _processes[0]


def take_learner(policy: Reference, parameters: LearnerParameters) -> HeldLearner:
    """The learner with this policy and its optimizer's state, from memory or from the store.

    The learner is removed from memory: after changing it, the caller stores it under its new policy (`keep_learner`). A
    failure in between therefore leaves no half-trained learner behind.
    """
    rest_resident_engine()
    processes = learner_processes(parameters.compute)  # forgets what lost ones held
    learner = _learners.pop((policy, parameters), None)
    if learner is not None:
        return learner
    _learners.clear()
    folder = opened(policy)
    base = None if processes else base_of(folder)
    return load_learner(folder, parameters, name=policy.digest, base=base, processes=processes)


def keep_learner(policy: Reference, parameters: LearnerParameters, learner: HeldLearner) -> None:
    """Keep a learner in memory under the policy that it now holds."""
    _learners.clear()
    _learners[policy, parameters] = learner


def base_of(policy: Path) -> Path | None:
    """The folder of the weights that the adapter in the artifact's folder `policy` belongs to; None without one.

    A learner is named by its policy's digest, so that an adapter's artifact says which policy it belongs to.
    """
    base = _base_named_in(policy)
    return None if base is None else opened(base, MODEL_FILES)


def base_reference(policy: Reference) -> Reference | None:
    """The policy that the adapter in this one belongs to; None where this one has all weights.

    It is read from the adapter's description, which no run prunes. Nothing is made again for it.

    Raises:
        ArtifactError: the artifact is missing or damaged, or its description was pruned.
    """
    from turnwise.policy.adapter import DESCRIPTION_FILE

    store = default_store()
    if DESCRIPTION_FILE not in store.manifest(policy).files:
        return None
    return _base_named_in(store.folder(policy, [DESCRIPTION_FILE]))


def _base_named_in(folder: Path) -> Reference | None:
    from turnwise.policy.adapter import base_name, has_adapter

    return Reference(kind="policy", digest=base_name(folder)) if has_adapter(folder) else None


@contextmanager
def whole_policy(policy: Reference) -> Iterator[Path]:
    """A folder with all weights of a policy: its artifact's, or with an adapter a temporary one, in which it is merged.

    For those who have no use for an adapter by itself. It is there within the block alone.
    """
    folder = opened(policy, MODEL_FILES)
    base = base_of(folder)
    if base is None:
        yield folder
        return
    from turnwise.policy.adapted import write_whole_policy

    with TemporaryDirectory() as merged:
        write_whole_policy(base, folder, Path(merged))
        yield Path(merged)


def model_in_memory(digest: str) -> PreTrainedModel | None:
    """The model of the policy with this digest, where the learner in memory holds it: its weights as saved."""
    learner_of_policy = next((learner for (policy, _), learner in _learners.items() if policy.digest == digest), None)
    return getattr(learner_of_policy, "model", None)  # several processes hold slices of it: it is read from the store


def reference_log_probabilities(
    policy: Reference,
    parameters: LearnerParameters,
    adapted: Reference,
    sequences: Sequences,
    temperature: float,
    micro_batch_tokens: int,
) -> Ragged:
    """Log-probabilities of the frozen reference policy, as `Learner.log_probabilities`.

    With an adapter it is the learner of `adapted`, whose training began with `policy`, with the adapter off: no second
    copy of the weights. Else it is loaded once, is never trained, and stays in memory.
    """
    if parameters.adapter is None:
        rest_resident_engine()
        frozen = _reference_policy(policy, parameters.compute)
        return frozen.log_probabilities(sequences, temperature, micro_batch_tokens)
    learner = take_learner(adapted, parameters)
    log_p = learner.reference_log_probabilities(sequences, temperature, micro_batch_tokens)
    keep_learner(adapted, parameters, learner)
    return log_p


def log_probabilities(
    policy: Reference,
    parameters: LearnerParameters,
    sequences: Sequences,
    temperature: float,
    micro_batch_tokens: int,
) -> Ragged:
    """Log-probabilities of a policy in training, as `Learner.log_probabilities`."""
    learner = take_learner(policy, parameters)
    log_p = learner.log_probabilities(sequences, temperature, micro_batch_tokens)
    keep_learner(policy, parameters, learner)
    return log_p


def _reference_policy(policy: Reference, compute: Compute) -> HeldLearner | ScoredPolicy:
    parameters = LearnerParameters(compute=compute)
    learner_processes(compute)  # forgets what lost ones held
    if (policy, parameters) not in _references:
        _references.clear()
        _references[policy, parameters] = _scored_policy(policy, compute)
    return _references[policy, parameters]


def _scored_policy(policy: Reference, compute: Compute) -> HeldLearner | ScoredPolicy:
    processes, parameters = learner_processes(compute), LearnerParameters(compute=compute)
    with whole_policy(policy) as folder:
        if processes is not None:
            return load_frozen_policy(folder, parameters, processes)
        from turnwise.policy.scored_policy import ScoredPolicy

        return ScoredPolicy(folder, device=compute.device, threads=compute.learner_threads, model=parameters.model)


def frozen_policy(policy: Reference, compute: Compute) -> HeldLearner:
    """A policy for log-probabilities alone, from the store; it is not kept in memory."""
    rest_resident_engine()
    with whole_policy(policy) as folder:
        return load_frozen_policy(folder, LearnerParameters(compute=compute), learner_processes(compute))


def teacher_code(teacher: Outside | None) -> list[str]:
    """The modules that read a teacher, for the cache key; none without one."""
    return [] if teacher is None else ["turnwise.policy.pretrained", "turnwise.policy.tokenizer"]


def teacher_policy(teacher: Outside, tokenizer: Reference, compute: Compute) -> ScoredPolicy:
    """The policy from outside that is learned from; it stays in memory, in this process.

    Raises ConfigurationError where its tokens are not those of `tokenizer`, the policy's.
    """
    from turnwise.policy.scored_policy import ScoredPolicy

    parameters = LearnerParameters(compute=compute)
    if (teacher, parameters) not in _teachers:
        rest_resident_engine()
        _teachers.clear()
        folder = pretrained_folder(teacher)
        require_same_tokens(folder, default_store().folder(tokenizer))
        _teachers[teacher, parameters] = ScoredPolicy(
            folder, device=compute.device, threads=compute.learner_threads, model=parameters.model
        )
        require_unchanged(teacher)
    return _teachers[teacher, parameters]


def take_critic(critic: Reference, parameters: LearnerParameters) -> HeldCritic:
    """The critic with a trunk of its own and its optimizer's state, from memory or from the store.

    It is removed from memory, as in `take_learner`.
    """
    rest_resident_engine()
    processes = learner_processes(parameters.compute)
    judge = _critics.pop((critic, parameters), None)
    if judge is not None:
        return judge
    _critics.clear()
    return load_critic(opened(critic), parameters, processes)


def keep_critic(critic: Reference, parameters: LearnerParameters, judge: HeldCritic) -> None:
    """Keep a critic in memory under its new artifact."""
    _critics.clear()
    _critics[critic, parameters] = judge


@contextmanager
def consulted_critic(critic: Reference, parameters: LearnerParameters) -> Iterator[HeldCritic]:
    """The critic for inference only. For a critic on the policy's trunk, `critic` is the policy's artifact."""
    if parameters.with_critic:
        learner = take_learner(critic, parameters)
        assert learner.critic is not None
        yield learner.critic
        keep_learner(critic, parameters, learner)
    else:
        judge = take_critic(critic, parameters)
        yield judge
        keep_critic(critic, parameters, judge)


def begin_with(draft: Draft, artifact: Reference) -> None:
    """Copy all files of an artifact but its manifest into a draft; its metrics are therefore not copied."""
    folder = opened(artifact)
    shutil.copytree(folder, draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
