"""The artifacts of a run so far: the references of its iterations, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.store.retention import Keep, Link


@dataclass(frozen=True)
class Iteration:
    """The artifacts of one iteration."""

    number: int
    """Counts from 1; the policy of iteration n has learned from n batches."""
    rollout: Reference
    credit: Reference
    policy: Reference
    health: Reference
    """Its bookkeeping: monitors, alarms, and the turn limit of the next iteration."""
    evaluation: Reference | None
    """On the validation task set; None in iterations without an evaluation."""
    evaluation_at_horizon: Reference | None = None
    """The same at this iteration's turn limit, where that is below the world's."""
    selection: Reference | None = None
    """Which groups were kept; None where all are."""
    critic: Reference | None = None
    """The critic after this batch, None without one; on the policy's trunk it is the policy's artifact."""
    probe: Reference | None = None
    """The measurements of the batch by models; None in iterations without a probe."""
    returned: Reference | None = None
    """The healthy policy that an alarm returned the run to after this iteration; None where it did not."""

    @property
    def successor(self) -> Reference:
        """The behaviour policy of the next iteration."""
        return self.returned or self.policy


@dataclass
class Run:
    """One variant with one seed, and its artifacts so far."""

    variant: str
    seed: int
    experiment: Experiment
    """The variant's own configuration; after a return, with the settings that it changed."""
    start: Reference
    """Evaluation of the warm start on the validation task set: iteration 0 of the curves."""
    start_at_horizon: Reference | None = None
    """The same at the turn limit of the first iteration, where that is below the world's."""
    iterations: list[Iteration] = field(default_factory=list)
    test: Reference | None = None
    """Evaluation of the final policy on the test task set."""
    test_at_horizon: Reference | None = None
    critic: Reference | None = None
    """The initial critic, if the estimator has one."""
    kept: dict[Reference, Keep] = field(default_factory=dict)
    """What retention has kept of each artifact so far."""

    @property
    def name(self) -> str:
        """The name of the run wherever it is shown."""
        return f"{self.variant} seed {self.seed}"

    @property
    def policy(self) -> Reference:
        """The final policy."""
        return self.iterations[-1].successor

    @property
    def chains(self) -> list[list[Link]]:
        """Its policies in order, including those returned to, and its critics, if they are artifacts of their own."""
        policies = []
        for iteration in self.iterations:
            policies.append(Link(iteration.policy, iteration.evaluation))
            policies += [Link(iteration.returned)] if iteration.returned else []
        critics = [self.critic, *(iteration.critic for iteration in self.iterations)]
        return [policies, [Link(each) for each in critics if each is not None and each.kind == "critic"]]
