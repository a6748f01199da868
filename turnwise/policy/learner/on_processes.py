"""A learner and a critic that several processes hold, with the methods of those that one process holds.

`turnwise.policy.learner.processes` has the processes. Every method is that of `turnwise.policy.learner.learner.Learner`
or of `turnwise.policy.critic.critic.Critic`, called in all of them.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.config.schema import CriticSection, SupervisedOptimizer
from turnwise.data.arrays import Numbers, Ragged, Sequences
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.learner.asked import Held
from turnwise.policy.learner.processes import LearnerProcesses
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings


class CriticOnProcesses:
    """A critic that several processes hold, with the methods of `turnwise.policy.critic.critic.Critic`."""

    def __init__(self, processes: LearnerProcesses, path: str) -> None:
        self._processes, self._path = processes, path

    @classmethod
    def with_own_trunk(
        cls, processes: LearnerProcesses, policy: Path, settings: CriticSection, *, seed: int, **loading: Any
    ) -> CriticOnProcesses:
        """As `Critic.with_own_trunk`."""
        return cls._holding(processes, processes.make("critic", policy, settings, seed=seed, **loading))

    @classmethod
    def restore(cls, processes: LearnerProcesses, folder: Path, **loading: Any) -> CriticOnProcesses:
        """As `Critic.restore`."""
        return cls._holding(processes, processes.make("critic.restore", folder, **loading))

    @classmethod
    def _holding(cls, processes: LearnerProcesses, held: Held) -> CriticOnProcesses:
        critic = cls(processes, str(held.number))
        weakref.finalize(critic, processes.forget, held)
        return critic

    def values(self, sequences: Sequences, micro_batch_tokens: int) -> Ragged:
        """As `Critic.values`."""
        found: Ragged = self._processes.call(f"{self._path}.values", sequences, micro_batch_tokens)
        return found

    def bootstrap(self, sequences: Sequences, micro_batch_tokens: int) -> Numbers:
        """As `Critic.bootstrap`."""
        found: Numbers = self._processes.call(f"{self._path}.bootstrap", sequences, micro_batch_tokens)
        return found

    def update(self, batch: ValueBatch, settings: CriticSection, *, seed: int) -> dict[str, float]:
        """As `Critic.update`."""
        found: dict[str, float] = self._processes.call(f"{self._path}.update", batch, settings, seed=seed)
        return found

    def save(self, folder: Path) -> None:
        """As `Critic.save`."""
        self._processes.call(f"{self._path}.save", folder)


class LearnerOnProcesses:
    """A learner that several processes hold, with the methods of `turnwise.policy.learner.learner.Learner`."""

    def __init__(
        self,
        processes: LearnerProcesses,
        policy: Path,
        *,
        threads: int,
        model: ModelSettings = PLAIN,
        restored: bool = False,
    ) -> None:
        """Load `policy`; with `restored` as `Learner.restore` does."""
        self.processes = processes
        path = "learner.restore" if restored else "learner"
        self._held = processes.make(path, policy, threads=threads, model=model)
        self._path = str(self._held.number)
        self.critic: CriticOnProcesses | None = None
        weakref.finalize(self, processes.forget, self._held)

    def add_critic(self, policy: Path) -> None:
        """As `Learner.add_critic`."""
        self._call("add_critic", policy)
        self.critic = CriticOnProcesses(self.processes, f"{self._path}.critic")

    @property
    def steps(self) -> int:
        """As `Learner.steps`."""
        found: int = self._call("steps")
        return found

    def log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """As `Learner.log_probabilities`."""
        found: Ragged = self._call("log_probabilities", sequences, temperature, micro_batch_tokens)
        return found

    def reference_log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """As `Learner.reference_log_probabilities`."""
        found: Ragged = self._call("reference_log_probabilities", sequences, temperature, micro_batch_tokens)
        return found

    def supervised_step(
        self,
        sequences: Sequences,
        *,
        learning_rate: float,
        micro_batch_tokens: int,
        maximum_gradient_norm: float = 1.0,
        weight_decay: float = 0.0,
        optimizer: SupervisedOptimizer = "adamw",
    ) -> dict[str, float]:
        """As `Learner.supervised_step`."""
        found: dict[str, float] = self._call(
            "supervised_step",
            sequences,
            learning_rate=learning_rate,
            micro_batch_tokens=micro_batch_tokens,
            maximum_gradient_norm=maximum_gradient_norm,
            weight_decay=weight_decay,
            optimizer=optimizer,
        )
        return found

    def update(
        self, batch: UpdateBatch, settings: UpdateSettings, sampler: LearnerOnProcesses | None = None
    ) -> dict[str, float]:
        """As `Learner.update`; a `sampler` must be held by the same processes."""
        held = None if sampler is None else sampler._held
        found: dict[str, float] = self._call("update", batch, settings, held)
        return found

    def save(self, folder: Path) -> None:
        """As `Learner.save`."""
        self._call("save", folder)

    def forget_peak_memory(self) -> None:
        """As `Learner.forget_peak_memory`."""
        self._call("forget_peak_memory")

    def peak_memory_bytes(self) -> int:
        """As `Learner.peak_memory_bytes`, of the first process."""
        found: int = self._call("peak_memory_bytes")
        return found

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        return self.processes.call(f"{self._path}.{name}", *arguments, **named)
