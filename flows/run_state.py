"""What a run has made so far: the references of its iterations, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.store.retention import Keep, Link


@dataclass(frozen=True)
class Iteration:
    """What one iteration made."""

    number: int
    """From 1; the policy of iteration n has learned from n batches."""
    rollout: Reference
    credit: Reference
    policy: Reference
    horizon: Reference
    """The curriculum's state after it, with the limit on turns of the next."""
    evaluation: Reference | None
    """On the validation panel, where one was due."""
    evaluation_at_horizon: Reference | None = None
    """The same at the limit that this iteration's episodes had, where that is below the world's."""
    selection: Reference | None = None
    """Which groups were kept, where not all are."""
    critic: Reference | None = None
    """After it has learned from this batch, where the estimator has one; on the policy's trunk it is the policy."""
    probe: Reference | None = None
    """What models say of the batch, where they were asked."""
    monitors: Reference | None = None
    alarm: Reference | None = None
    returned: Reference | None = None
    """The healthy policy that the run went back to after this iteration, where an alarm made it."""

    @property
    def successor(self) -> Reference:
        """The policy that the next iteration samples with."""
        return self.returned or self.policy


@dataclass
class Run:
    """One variant with one seed."""

    variant: str
    seed: int
    experiment: Experiment
    """The variant's own; after an alarm that made the run go back, with what that changed."""
    start: Reference
    """The evaluation of the warm start on the validation panel: iteration 0 of the curves."""
    start_at_horizon: Reference | None = None
    """The same at the limit of the first iteration, where that is below the world's. So for the next."""
    iterations: list[Iteration] = field(default_factory=list)
    test: Reference | None = None
    """The final policy on the test panel."""
    test_at_horizon: Reference | None = None
    critic: Reference | None = None
    """Before the first iteration, where the estimator has one."""
    kept: dict[Reference, Keep] = field(default_factory=dict)
    """How much is left of what it made, once that was looked at."""

    @property
    def name(self) -> str:
        """What the run is called wherever people read."""
        return f"{self.variant} seed {self.seed}"

    @property
    def policy(self) -> Reference:
        """The final policy."""
        return self.iterations[-1].successor

    @property
    def chains(self) -> list[list[Link]]:
        """Its policies in order, with those that it went back to, and its critics, where they are not policies."""
        policies = []
        for iteration in self.iterations:
            policies.append(Link(iteration.policy, iteration.evaluation))
            policies += [Link(iteration.returned)] if iteration.returned else []
        critics = [self.critic, *(iteration.critic for iteration in self.iterations)]
        return [policies, [Link(each) for each in critics if each is not None and each.kind == "critic"]]
