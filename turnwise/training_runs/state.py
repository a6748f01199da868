"""The state of a run: what it started from, its iterations so far, and the models that the next one starts from.

Here are also the parameters that the stages of one experiment have in common, and the runs that a fault has left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from turnwise.agent.examples import WorkedExample
from turnwise.agent.playing import PlayParameters, play_examples, the_world
from turnwise.config.agent import added_rewards, requested_rewards
from turnwise.config.schema import RetryOptions, Section, WorldSection
from turnwise.data.outcomes import EarlyEnd, LeftOut, NamedRun
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.health.alarms import Change
from turnwise.store import Reference
from turnwise.store.retention import Keep, RetentionEntry
from turnwise.world import Split

ON_TEST_TASKS = "on the test task set"
"""How the label of an evaluation says that it is one."""
GREEDILY = " greedy"
"""How the label of a rollout ends that no policy is trained on, with which credit rules compare."""


def play_parameters(experiment: Experiment) -> PlayParameters:
    """The parameters of an experiment that all stages that play episodes share.

    Raises ConfigurationError where the world's oracle cannot play the worked examples.
    """
    parameters = PlayParameters(
        world=experiment.world,
        agent=experiment.agent,
        patience=RetryOptions.taken_from(experiment.rollout),
        further_rewards=requested_rewards(experiment.rewards, experiment.made_world),
        added_rewards=added_rewards(experiment.rewards),
    )
    return parameters.changed(examples=worked_examples(parameters, experiment.data.train_tasks))


def worked_examples(parameters: PlayParameters, train_tasks: int) -> tuple[WorkedExample, ...]:
    """The worked examples that `agent.examples` asks for, from the first of so many training tasks."""
    if not parameters.agent.examples:
        return ()
    return _examples(parameters.changed(further_rewards=(), added_rewards={}).model_dump_json(), train_tasks)


@cache
def _examples(parameters: str, train_tasks: int) -> tuple[WorkedExample, ...]:
    """The worked examples for parameters as JSON; each is played once in a process."""
    play_parameters = PlayParameters.model_validate_json(parameters)
    return play_examples(play_parameters, the_world(play_parameters.world).tasks("train", train_tasks))


class TaskSetParameters(Section):
    """The parameters of the task set of one split."""

    world: WorldSection
    split: Split
    tasks: int


def task_set_parameters(experiment: Experiment, split: Split) -> TaskSetParameters:
    """The parameters of the task set of a split."""
    data = experiment.data
    counts = {"train": data.train_tasks, "validation": data.validation_tasks, "test": data.test_tasks}
    return TaskSetParameters(world=experiment.world, split=split, tasks=counts[split])


def changed(experiment: Experiment, change: Change) -> Experiment:
    """The experiment with the settings that apply after a return."""
    optimization = experiment.optimization.model_copy(update={"learning_rate": change.learning_rate})
    return experiment.model_copy(update={"optimization": optimization, "selection": change.selection})


@dataclass(frozen=True)
class Materials:
    """The tasks, demonstrations and tokenizer, made before any policy."""

    train_task_set: Reference
    validation_task_set: Reference
    test_task_set: Reference
    demonstrations: Reference
    """Demonstrations or a user's conversations, to be imitated."""
    tokenizer: Reference

    def task_set(self, split: Split) -> Reference:
        """The task set of a split."""
        return {"train": self.train_task_set, "validation": self.validation_task_set, "test": self.test_task_set}[split]


@dataclass(frozen=True)
class Prepared(Materials):
    """The starting point of every run of an ablation."""

    warm_start: Reference
    """The policy that reinforcement starts from."""


@dataclass(frozen=True)
class Models:
    """The policy and the critic at one moment of a run."""

    policy: Reference
    critic: Reference | None
    """None for an estimator without a critic. A critic on the policy's trunk is the policy's artifact."""


@dataclass
class Iteration:
    """One iteration, from the models that it started with to the artifacts that it made."""

    number: int
    """Counts from 1; the policy of iteration n has learned from n batches."""
    before: Models
    """The policy that is updated, and the critic that values the rollout: the newest ones."""
    limit: int | None
    """The turn limit that the curriculum set; None: only the world's own."""
    made: dict[str, Reference] = field(default_factory=dict)
    """The artifacts so far, in order, by their names in `turnwise.training_runs.iteration_stages`."""
    earlier: Models | None = None
    """With `rollout.lag`, what the iteration before started with. None: no lag, or none yet."""

    @property
    def sampler(self) -> Models:
        """The behaviour policy, which samples the rollout, and the critic of the same age."""
        return self.before if self.earlier is None else self.earlier

    @property
    def rollout(self) -> Reference:
        """The trajectories, all rounds of sampling together."""
        return self.made["rollout"]

    @property
    def credit(self) -> Reference:
        """The advantages of the rollout."""
        return self.made["credit"]

    @property
    def health(self) -> Reference:
        """The bookkeeping: monitors, alarms, and the turn limit of the next iteration."""
        return self.made["health"]

    @property
    def evaluation(self) -> Reference | None:
        """The policy on the validation task set; None in iterations without an evaluation."""
        return self.made.get("evaluation")

    @property
    def returned(self) -> Reference | None:
        """The healthy policy that an alarm returned the run to after this iteration; None where it did not."""
        return self.made.get("returned")

    @property
    def policy(self) -> Reference:
        """The policy that has learned from this batch; while a critic warms up, the one that sampled it.

        Where that critic is on the policy's trunk, the policy's artifact with the critic as it is now.
        """
        return self.made.get("policy") or (self.made.get("critic") if self._on_trunk else None) or self.before.policy

    @property
    def critic(self) -> Reference | None:
        """The critic that has learned from this batch; None without one."""
        return self.policy if self._on_trunk else self.made.get("critic", self.before.critic)

    @property
    def _on_trunk(self) -> bool:
        """Whether the critic is on the policy's trunk, and so a part of its artifact."""
        return self.before.critic == self.before.policy

    @property
    def artifacts(self) -> dict[str, Reference]:
        """All that it made, by name, and in any case the policy and the critic that it ended with."""
        ended = {"policy": self.policy, **({} if self.critic is None else {"critic": self.critic})}
        return {**self.made, **ended}


@dataclass
class Run(NamedRun):
    """One variant with one seed, and its artifacts so far."""

    variant: str
    seed: int
    experiment: Experiment
    """The variant's own configuration; after a return, with the settings that it changed."""
    prepared: Prepared
    models: Models
    """What the next iteration starts from; after the last one, the final policy and critic."""
    start: Reference
    """Evaluation of the warm start on the validation task set: iteration 0 of the curves."""
    start_at_horizon: Reference | None = None
    """The same at the turn limit of the first iteration, where that is below the world's."""
    start_warning: str = ""
    """Why its reinforcement has nothing to begin with; empty where it has something."""
    iterations: list[Iteration] = field(default_factory=list)
    ended: EarlyEnd | None = None
    """How a guard or an alarm ended it; None while it goes on, and where it made all its iterations."""
    test: Reference | None = None
    """Evaluation of the final policy on the test task set; where it was ended, of the policy that it ended with."""
    test_at_horizon: Reference | None = None
    chains: dict[str, list[RetentionEntry]] = field(default_factory=dict)
    """By kind, the policies and the critics of which retention may keep less later, in the order of training."""
    retention: dict[Reference, Keep] = field(default_factory=dict)
    """What retention has kept of each artifact so far."""

    @property
    def policy(self) -> Reference:
        """The policy that the next iteration would update; after the last one, the final policy."""
        return self.models.policy

    @property
    def earlier(self) -> Models | None:
        """With `rollout.lag`, the models whose policy samples the next iteration, where these are not the newest.

        None before the first iteration, and after a return to a healthy policy: what the policy that was left has
        sampled ahead is dropped, and the healthy one samples.
        """
        if not (self.experiment.rollout.lag and self.iterations) or self.iterations[-1].returned is not None:
            return None
        return self.iterations[-1].before

    @property
    def evaluations(self) -> list[Reference]:
        """The evaluations outside its iterations: of the warm start, and of the final policy on the test task set."""
        references = (self.start, self.start_at_horizon, self.test, self.test_at_horizon)
        return [evaluation for evaluation in references if evaluation is not None]

    def label(self, iteration: Iteration) -> str:
        """The name of one of its iterations wherever that is shown."""
        return f"{self.name} iteration {iteration.number}"

    def sampler_of(self, number: int) -> Models:
        """The models whose policy sampled iteration `number`; for 0, those that the run started from."""
        return self.iterations[max(number, 1) - 1].sampler


def divided(outcomes: Mapping[tuple[str, int], Run | TrainingEnded]) -> tuple[list[Run], list[LeftOut]]:
    """The runs that count, also those that were ended early, and those that a fault has left out; by variant and seed.

    Raises:
        TrainingEnded: a fault has left out every run.
    """
    runs = [each for each in outcomes.values() if isinstance(each, Run)]
    left_out = [
        LeftOut(variant=variant, seed=seed, by=each.fault, message=str(each))
        for (variant, seed), each in outcomes.items()
        if isinstance(each, TrainingEnded)
    ]
    if not runs:
        require_none(left_out)
    return runs, left_out


def require_none(left_out: Sequence[LeftOut]) -> None:
    """Raise TrainingEnded, with what each message says, unless no run was left out."""
    if left_out:
        raise TrainingEnded(said_of(left_out), "TW-training-ended")


def said_of(left_out: Sequence[LeftOut]) -> str:
    """What is said of runs that a fault has left out; empty where there are none."""
    if not left_out:
        return ""
    names = ", ".join(f"{each.name} ({each.by})" for each in left_out)
    messages = "\n".join(each.message for each in left_out)
    return (
        f"every run must be sound to count; left out by a fault: {names}. What they had made is kept, and what is "
        f"reported is over the others. Change what the messages say, and run all of them again.\n{messages}"
    )


@dataclass(frozen=True)
class AblationOutcome:
    """All artifacts of an ablation."""

    prepared: Prepared
    baselines: dict[str, Reference]
    """The evaluations of the baseline policies on the test task set, by name."""
    warm_start: Reference
    """The evaluation of the warm start on the test task set."""
    runs: list[Run]
    left_out: list[LeftOut]
    """The runs that a fault has left out."""
    report: Reference
