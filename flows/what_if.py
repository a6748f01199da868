"""What if a recorded run had learned otherwise from one of its rollouts: other credit, other losses, no new episodes.

    rollout_n, P_(n-1) of the run --values, reference, rescore--> scores, those of the run where it has them
    rollout_n, scores --credit, with the other settings--> advantages
    rollout_n, both advantages, P_(n-1) --first_steps--> gradients compared, clip shares and KL after a step

The stages and their results are those of a run with these settings: what one of the two has computed, the other finds.
Nothing of the recorded run is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from prefect import flow
from rich.console import Console

from flows.learning import credit_rollout, rescore_rollout, score_under_warm_start, update_parameters
from flows.runtime.flow_runs import untagged_tasks
from flows.sampling import play_greedily, select_groups
from tasks.calls import Call
from tasks.health.health import read_health
from tasks.update.first_steps import FirstSteps, FirstStepsParameters, first_steps, read_first_steps
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.trajectory_files import read_credit
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.model_files import MODEL_FILES
from turnwise.policy.models_in_memory import base_reference
from turnwise.store import Reference, default_store
from turnwise.store.artifacts import EVERYTHING
from turnwise.tracking.finding import RecordedRun
from turnwise.training_runs.display import Display
from turnwise.training_runs.state import Iteration, Models, Prepared, Run

RECORDED, WHAT_IF = "recorded", "what if"
OF_WARM_START = {"reference", "start_answer_scores"}
"""Stages that read the rollout by the warm start, and not by the policy that sampled it."""
WITHOUT: Mapping[str, str] = {
    "weights": "The optimizer's state of {policy} was pruned: gradients are compared, and no step is taken. --remake "
    "makes it again.",
    "nothing": "The policy of this iteration, {policy}, was pruned: there are no gradients. --remake makes it again.",
}
"""What is said where retention has left less than everything of a policy."""


@dataclass(frozen=True)
class Recredited:
    """A rollout of a recorded run, credited as it was and as it would be."""

    experiments: Mapping[str, Experiment]
    """By `RECORDED` and `WHAT_IF`, the configuration."""
    credits: Mapping[str, Reference]
    """Their artifacts `credit`."""
    rollout: Reference
    policy: Reference
    """The policy that the iteration updated."""
    steps: FirstSteps | None
    """None where no gradient was computed."""
    notes: list[str]
    """Why there is no gradient, or no step."""

    def advantages(self) -> dict[str, dict[int, TrajectoryAdvantages]]:
        """By `RECORDED` and `WHAT_IF` and by trajectory, the advantages."""
        return {name: read_credit(credit) for name, credit in self.credits.items()}


@flow(
    name="what if",
    flow_run_name="what if {run.name} iteration {number}",
    validate_parameters=False,
    persist_result=False,
)
@untagged_tasks
def credit_again(
    run: RecordedRun, number: int, recorded: Experiment, experiment: Experiment, remake: bool, quiet: bool = False
) -> Recredited:
    """Credit rollout `number` of a recorded run as `experiment` says, and compare gradients where the policy is there.

    `remake`: make the policy or the rollout again where it was pruned.

    Raises ConfigurationError where they were pruned and what is asked for cannot do without.
    """
    artifacts = run.artifacts.iterations[number - 1]
    state, iteration = _state(run, number, experiment)
    display = Display(Console(quiet=quiet), Counter(["credit", "first_steps"]))
    with display.showing():
        if not remake:
            _require_files(run, number, "its rollout", iteration.rollout, EVERYTHING)
        _recompute_scores(run, state, iteration, recorded, artifacts, remake)
        credits = {RECORDED: artifacts["credit"], WHAT_IF: credit_rollout(state, iteration).make()}
        files = "everything" if remake else _retained_files(iteration)
        both = {RECORDED: recorded, WHAT_IF: experiment}
        can_step = files == "everything"
        steps = None if files == "nothing" else _first_steps(run, number, both, credits, iteration, artifacts, can_step)
    notes = [] if can_step else [WITHOUT[files].format(policy=iteration.before.policy)]
    return Recredited(both, credits, iteration.rollout, iteration.before.policy, steps, notes)


def _state(run: RecordedRun, number: int, experiment: Experiment) -> tuple[Run, Iteration]:
    """The run and its iteration as they were before credit was given."""
    artifacts = run.artifacts
    prepared = Prepared(**artifacts.prepared)
    before, outputs = _before(run, number), artifacts.iterations[number - 1]
    lagged = experiment.rollout.lag and number > 1 and "returned" not in artifacts.iterations[number - 2]
    earlier = _before(run, number - 1) if lagged else None
    latest = number - 1 - experiment.rollout.lag
    limit = (
        experiment.below_the_worlds(read_health(artifacts.iterations[latest - 1]["health"]).horizon.limit)
        if latest > 0
        else experiment.first_turn_limit(number)
    )
    iteration = Iteration(number, before, limit, {"rollout": outputs["rollout"]}, earlier=earlier)
    return Run(artifacts.variant, artifacts.seed, experiment, prepared, before, artifacts.start), iteration


def _before(run: RecordedRun, number: int) -> Models:
    """The policy that an iteration updated. No critic: its values were recorded."""
    if number == 1:
        return Models(run.artifacts.prepared["warm_start"], None)
    last = run.artifacts.iterations[number - 2]
    return Models(last.get("returned", last["policy"]), None)


def _recompute_scores(
    run: RecordedRun,
    state: Run,
    iteration: Iteration,
    original: Experiment,
    outputs: Mapping[str, Reference],
    remake: bool,
) -> None:
    """Add to the iteration what the other settings need besides the rollout: what the run has made, or is made now."""
    experiment = state.experiment
    if experiment.has_critic:
        iteration.made["values"] = outputs["values"]
    needed = [*(["reference"] if experiment.optimization.reference is not None else []), *experiment.rescored]
    needed += ["greedy"] if experiment.plays_greedily else []
    missing = [name for name in needed if name not in outputs]
    if not remake and missing:
        sampler = "the policy that sampled it", iteration.sampler.policy
        warm_start = "its warm start", state.prepared.warm_start
        _require_files(run, iteration.number, *(warm_start if {*missing} <= OF_WARM_START else sampler), MODEL_FILES)
    makers: dict[str, Callable[[Run, Iteration], Call]] = {
        "reference": score_under_warm_start,
        "greedy": play_greedily,
        **{need: partial(rescore_rollout, need=need) for need in experiment.rescored},
    }
    for name in needed:
        iteration.made[name] = outputs[name] if name in outputs else makers[name](state, iteration).make()
    if experiment.selection.rule == "all":
        return
    if (experiment.selection, experiment.rewards) == (original.selection, original.rewards) and "selection" in outputs:
        iteration.made["selection"] = outputs["selection"]
    else:
        iteration.made["selection"] = select_groups(state, iteration, Call.make)


def _first_steps(
    run: RecordedRun,
    number: int,
    experiments: Mapping[str, Experiment],
    credits: Mapping[str, Reference],
    iteration: Iteration,
    outputs: Mapping[str, Reference],
    can_step: bool,
) -> FirstSteps:
    scores = {RECORDED: outputs, WHAT_IF: iteration.made}
    in_loss = {
        name: scores[name]["reference"]
        for name, each in experiments.items()
        if each.optimization.penalty_in_loss is not None
    }
    on_trunk = {name: scores[name]["values"] for name, each in experiments.items() if each.critic_on_trunk}
    shows = any(each.optimization.distillation is not None for each in experiments.values())
    reference = first_steps(
        FirstStepsParameters(
            updates={name: update_parameters(each, run.artifacts.seed, number) for name, each in experiments.items()},
            taken=can_step,
        ),
        policy=iteration.before.policy,
        rollout=iteration.rollout,
        credits=dict(credits),
        references=in_loss or None,
        values=on_trunk or None,
        sampler=iteration.sampler.policy if iteration.sampler.policy != iteration.before.policy else None,
        tokenizer=run.artifacts.prepared["tokenizer"] if shows else None,
        label=f"what if {run.name} iteration {number}",
    )
    return read_first_steps(reference)


def _retained_files(iteration: Iteration) -> Literal["everything", "weights", "nothing"]:
    """What retention has left of the policies whose gradient is computed."""
    store, policy = default_store(), iteration.before.policy
    if store.pruned(policy, MODEL_FILES) or store.pruned(iteration.sampler.policy, MODEL_FILES):
        return "nothing"
    if not store.pruned(policy):
        return "everything"
    whole = base_reference(policy) is None and not store.pruned(policy, ("critic/*",))
    return "weights" if whole else "nothing"  # a critic on the trunk has a part in the gradient


def _require_files(run: RecordedRun, number: int, what: str, needed: Reference, files: Sequence[str]) -> None:
    """Raise ConfigurationError where files were pruned that are needed."""
    if default_store().pruned(needed, files):
        raise ConfigurationError(
            f"iteration {number} of {run.name} is credited with these settings from {what}, {needed}, which was "
            "pruned: give --remake, which makes it again from what it was made of",
            "TW-pruned",
        )
