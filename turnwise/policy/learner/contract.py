"""What stages ask of a learner and of a critic, whether one process holds it or several.

`turnwise.policy.learner.learner.Learner` and `turnwise.policy.critic.critic.Critic` are held by this process, those of
`turnwise.policy.learner.processes` by others. Their methods are explained there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from turnwise.config.schema import CriticSection, SupervisedOptimizer
from turnwise.data.arrays import Numbers, Ragged, Sequences
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings


class HeldCritic(Protocol):
    """A critic in training."""

    def values(self, sequences: Sequences, micro_batch_tokens: int) -> Ragged:
        """Values of reply tokens."""

    def bootstrap(self, sequences: Sequences, micro_batch_tokens: int) -> Numbers:
        """Values after the last token of each sequence."""

    def update(self, batch: ValueBatch, settings: CriticSection, *, seed: int) -> dict[str, float]:
        """Optimizer steps on a batch, and their metrics."""

    def save(self, folder: Path) -> None:
        """Write the files that it goes on from."""


class HeldLearner(Protocol):
    """A policy in training."""

    @property
    def critic(self) -> HeldCritic | None:
        """The critic on its trunk."""

    def add_critic(self, policy: Path) -> None:
        """Put a critic on the policy's trunk."""

    def log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """Log-probabilities of reply tokens."""

    def reference_log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """Those of the policy that an adapter began with."""

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
        """One step towards these sequences, and its metrics."""

    def update(
        self, batch: UpdateBatch, settings: UpdateSettings, sampler: Any = None, teacher: Any = None
    ) -> dict[str, float]:
        """Optimizer steps on a batch, and their metrics. `sampler` must be held where this learner is."""

    def save(self, folder: Path) -> None:
        """Write the files that it goes on from."""

    def forget_peak_memory(self) -> None:
        """Reset the peak of the memory of its device."""

    def peak_memory_bytes(self) -> int:
        """The peak since then."""
