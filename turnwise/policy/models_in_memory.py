"""Models kept in memory between stages: one learner, one critic and one reference policy, each by its digest.

With `compute.learner_processes` above 1 all three are held by the same processes, which stay as long as this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.data.arrays import Ragged, Sequences
from turnwise.policy.engines.resident import rest_resident_engine
from turnwise.policy.learner.loading import load_critic, load_frozen_policy, load_learner
from turnwise.policy.model_files import MODEL_FILES
from turnwise.policy.pretrained import pretrained_folder, require_unchanged
from turnwise.policy.tokenizer import require_same_tokens
from turnwise.store import Reference, default_store
from turnwise.store.artifacts import EVERYTHING
from turnwise.store.plugin_identity import Outside

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from turnwise.policy.critic.critic import Critic
    from turnwise.policy.learner.learner import Learner
    from turnwise.policy.learner.processes import LearnerProcesses
    from turnwise.policy.scored_policy import ScoredPolicy


class Opener(Protocol):
    """Finds the files of an artifact."""

    def __call__(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
        """The folder of an artifact with the files that match a pattern of `needed`, pruned ones included."""


class ModelsInMemory:
    """The models of one process. A model that it does not hold is loaded from the store."""

    def __init__(self, opened: Opener) -> None:
        """`opened` finds the files of a policy or a critic."""
        self._opened = opened
        self._learners: dict[tuple[Reference, LearnerParameters], Learner] = {}
        self._critics: dict[tuple[Reference, LearnerParameters], Critic] = {}
        self._references: dict[tuple[Reference, LearnerParameters], Learner | ScoredPolicy] = {}
        self._teachers: dict[tuple[Outside, LearnerParameters], ScoredPolicy] = {}
        self._processes: LearnerProcesses | None = None

    def forget(self) -> None:
        """Free all models, and end the processes that hold them."""
        for models in (self._learners, self._critics, self._references, self._teachers):
            models.clear()
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def learner_processes(self, compute: Compute) -> LearnerProcesses | None:
        """The processes that train together; None for one. They are started where there are none any more."""
        if compute.learner_processes == 1:
            return None
        from turnwise.policy.learner.processes import LearnerProcesses

        started = self._processes
        if started is not None and not (started.alive and started.size == compute.learner_processes):
            self.forget()
        self._processes = self._processes or LearnerProcesses(compute.learner_processes, device=compute.device)
        return self._processes

    def take_learner(self, policy: Reference, parameters: LearnerParameters) -> Learner:
        """The learner with this policy and its optimizer's state, from memory or from the store.

        The learner is removed from memory: after changing it, the caller stores it under its new policy
        (`keep_learner`). A failure in between therefore leaves no half-trained learner behind.
        """
        rest_resident_engine()
        processes = self.learner_processes(parameters.compute)  # forgets what lost ones held
        learner = self._learners.pop((policy, parameters), None)
        if learner is not None:
            return learner
        self._learners.clear()
        folder = self._opened(policy)
        base = None if processes else self.base_of(folder)
        return load_learner(folder, parameters, name=policy.digest, base=base, processes=processes)

    def keep_learner(self, policy: Reference, parameters: LearnerParameters, learner: Learner) -> None:
        """Keep a learner in memory under the policy that it now holds."""
        self._learners.clear()
        self._learners[policy, parameters] = learner

    def base_of(self, policy: Path) -> Path | None:
        """The folder of the weights that the adapter in the artifact's folder `policy` belongs to; None without one.

        A learner is named by its policy's digest, so that an adapter's artifact says which policy it belongs to.
        """
        base = _base_named_in(policy)
        return None if base is None else self._opened(base, MODEL_FILES)

    @contextmanager
    def whole_policy(self, policy: Reference) -> Iterator[Path]:
        """A folder with all weights of a policy: its artifact's, or with an adapter a temporary one with both merged.

        For those who have no use for an adapter by itself. It is there within the block alone.
        """
        folder = self._opened(policy, MODEL_FILES)
        base = self.base_of(folder)
        if base is None:
            yield folder
            return
        from turnwise.policy.adapted import write_whole_policy

        with TemporaryDirectory() as merged:
            write_whole_policy(base, folder, Path(merged))
            yield Path(merged)

    def model_in_memory(self, digest: str) -> PreTrainedModel | None:
        """The model of the policy with this digest, where the learner in memory holds it: its weights as saved."""
        learner = next((learner for (policy, _), learner in self._learners.items() if policy.digest == digest), None)
        return getattr(learner, "model", None)  # several processes hold slices of it: it is read from the store

    def log_probabilities(
        self,
        policy: Reference,
        parameters: LearnerParameters,
        sequences: Sequences,
        temperature: float,
        micro_batch_tokens: int,
    ) -> Ragged:
        """Log-probabilities of a policy in training, as `Learner.log_probabilities`."""
        learner = self.take_learner(policy, parameters)
        log_p = learner.log_probabilities(sequences, temperature, micro_batch_tokens)
        self.keep_learner(policy, parameters, learner)
        return log_p

    def reference_log_probabilities(
        self,
        policy: Reference,
        parameters: LearnerParameters,
        adapted: Reference,
        sequences: Sequences,
        temperature: float,
        micro_batch_tokens: int,
    ) -> Ragged:
        """Log-probabilities of the frozen reference policy, as `Learner.log_probabilities`.

        With an adapter it is the learner of `adapted`, whose training began with `policy`, with the adapter off: no
        second copy of the weights. Else it is loaded once, is never trained, and stays in memory.
        """
        if parameters.adapter is None:
            rest_resident_engine()
            frozen = self._reference_policy(policy, parameters.compute)
            return frozen.log_probabilities(sequences, temperature, micro_batch_tokens)
        learner = self.take_learner(adapted, parameters)
        log_p = learner.reference_log_probabilities(sequences, temperature, micro_batch_tokens)
        self.keep_learner(adapted, parameters, learner)
        return log_p

    def _reference_policy(self, policy: Reference, compute: Compute) -> Learner | ScoredPolicy:
        parameters = LearnerParameters(compute=compute)
        processes = self.learner_processes(compute)  # forgets what lost ones held
        if (policy, parameters) not in self._references:
            self._references.clear()
            with self.whole_policy(policy) as folder:
                self._references[policy, parameters] = (
                    _scored_policy(folder, parameters)
                    if processes is None
                    else load_frozen_policy(folder, parameters, processes)
                )
        return self._references[policy, parameters]

    def frozen_policy(self, policy: Reference, compute: Compute) -> Learner:
        """A policy for log-probabilities alone, from the store; it is not kept in memory."""
        rest_resident_engine()
        with self.whole_policy(policy) as folder:
            return load_frozen_policy(folder, LearnerParameters(compute=compute), self.learner_processes(compute))

    def teacher_policy(self, teacher: Outside, tokenizer: Reference, compute: Compute) -> ScoredPolicy:
        """The policy from outside that is learned from; it stays in memory, in this process.

        Raises ConfigurationError where its tokens are not those of `tokenizer`, the policy's.
        """
        parameters = LearnerParameters(compute=compute)
        if (teacher, parameters) not in self._teachers:
            rest_resident_engine()
            self._teachers.clear()
            folder = pretrained_folder(teacher)
            require_same_tokens(folder, default_store().folder(tokenizer))
            loaded = _scored_policy(folder, parameters)
            require_unchanged(teacher)
            self._teachers[teacher, parameters] = loaded
        return self._teachers[teacher, parameters]

    def take_critic(self, critic: Reference, parameters: LearnerParameters) -> Critic:
        """The critic with a trunk of its own and its optimizer's state, from memory or from the store.

        It is removed from memory, as in `take_learner`.
        """
        rest_resident_engine()
        processes = self.learner_processes(parameters.compute)
        model = self._critics.pop((critic, parameters), None)
        if model is not None:
            return model
        self._critics.clear()
        return load_critic(self._opened(critic), parameters, processes)

    def keep_critic(self, critic: Reference, parameters: LearnerParameters, model: Critic) -> None:
        """Keep a critic in memory under its new artifact."""
        self._critics.clear()
        self._critics[critic, parameters] = model

    @contextmanager
    def consulted_critic(self, critic: Reference, parameters: LearnerParameters) -> Iterator[Critic]:
        """The critic for inference only. For a critic on the policy's trunk, `critic` is the policy's artifact."""
        if parameters.with_critic:
            learner = self.take_learner(critic, parameters)
            assert learner.critic is not None
            yield learner.critic
            self.keep_learner(critic, parameters, learner)
        else:
            model = self.take_critic(critic, parameters)
            yield model
            self.keep_critic(critic, parameters, model)


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


def _scored_policy(folder: Path, parameters: LearnerParameters) -> ScoredPolicy:
    from turnwise.policy.scored_policy import ScoredPolicy

    compute = parameters.compute
    return ScoredPolicy(folder, device=compute.device, threads=compute.learner_threads, model=parameters.model)
