"""Experiment: one variant with one seed, iteration by iteration.

P_k --rollout--> trajectories_k --credit--> advantages_k --update--> P_(k+1), and every n iterations an evaluation
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flows.prepare import Prepared, play_parameters
from tasks.credit import CreditParameters, credit
from tasks.evaluate import EvaluationParameters, evaluate
from tasks.rollout import RolloutParameters, rollout
from tasks.update import UpdateParameters, update
from turnwise.artifacts import Reference
from turnwise.config import Experiment
from turnwise.world import Split


@dataclass(frozen=True)
class Iteration:
    """What one iteration made."""

    number: int
    """From 1; the policy of iteration n has learned from n batches."""
    rollout: Reference
    credit: Reference
    policy: Reference
    evaluation: Reference | None
    """On the validation panel, where one was due."""


@dataclass
class Run:
    """One variant with one seed."""

    variant: str
    seed: int
    experiment: Experiment
    start: Reference
    """The evaluation of the warm start on the validation panel: iteration 0 of the curves."""
    iterations: list[Iteration] = field(default_factory=list)
    test: Reference | None = None
    """The final policy on the test panel."""

    @property
    def name(self) -> str:
        """What the run is called wherever people read."""
        return f"{self.variant} seed {self.seed}"

    @property
    def policy(self) -> Reference:
        """The final policy."""
        return self.iterations[-1].policy


def run_variant(
    experiment: Experiment,
    prepared: Prepared,
    variant: str,
    seed: int,
    on_iteration: Callable[[Run, Iteration], None] = lambda run, iteration: None,
) -> Run:
    """Train one variant with one seed and test it. `experiment` is the variant's own."""
    validation = _evaluation(experiment, "validation")
    start = _evaluate(f"{variant} seed {seed} before iteration 1", validation, prepared, prepared.warm_start)
    run = Run(variant, seed, experiment, start)
    policy = prepared.warm_start
    for number in range(1, experiment.optimization.iterations + 1):
        iteration = _iterate(run, number, prepared, policy, validation)
        run.iterations.append(iteration)
        on_iteration(run, iteration)
        policy = iteration.policy
    run.test = _evaluate(f"{run.name} on the test panel", _evaluation(experiment, "test"), prepared, policy)
    return run


def _iterate(
    run: Run, number: int, prepared: Prepared, policy: Reference, validation: EvaluationParameters
) -> Iteration:
    experiment, label = run.experiment, f"{run.name} iteration {number}"
    sampled = rollout.named(label)(
        RolloutParameters(
            **dict(play_parameters(experiment)),
            compute=experiment.compute,
            prompts=experiment.rollout.prompts,
            group_size=experiment.rollout.group_size,
            temperature=experiment.rollout.temperature,
            seed=run.seed,
            iteration=number,
        ),
        policy=policy,
        tokenizer=prepared.tokenizer,
        panels=prepared.panels,
    )
    credited = credit.named(label)(
        CreditParameters(rewards=experiment.rewards, credit=experiment.credit), rollout=sampled
    )
    updated = update.named(label)(
        UpdateParameters.of(
            experiment.optimization, experiment.compute, experiment.rollout.temperature, run.seed, number
        ),
        policy=policy,
        rollout=sampled,
        credit=credited,
    )
    due = number % experiment.evaluation.every == 0 or number == experiment.optimization.iterations
    evaluated = _evaluate(label, validation, prepared, updated) if due else None
    return Iteration(number, sampled, credited, updated, evaluated)


def _evaluation(experiment: Experiment, split: Split) -> EvaluationParameters:
    return EvaluationParameters.of(play_parameters(experiment), experiment.compute, experiment.evaluation, split)


def _evaluate(label: str, parameters: EvaluationParameters, prepared: Prepared, policy: Reference) -> Reference:
    return evaluate.named(label)(parameters, policy=policy, tokenizer=prepared.tokenizer, panels=prepared.panels)
