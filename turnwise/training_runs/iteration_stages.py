"""Every stage of an iteration, and how it is shown, in the order in which they run.

`flows.train` says when they run. The progress display, MLflow's metrics, the results, the time account, `turnwise
lineage`, retention and the report read this list, in which tasks are names: who only reads it imports nothing that
computes, and no Prefect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from turnwise.credit.batch import RESCORED
from turnwise.health.monitors import OF_PROBE
from turnwise.results.report_data import SHARE, Measure
from turnwise.statistics.curves import Spending
from turnwise.store import Reference
from turnwise.training_runs.state import Iteration

NATS = "nats per token"


@dataclass(frozen=True)
class MachineCost:
    """What a stage cost the machine that computed it, read from the clock next to its artifact."""

    metric: str
    """Its name in MLflow."""
    clock: str = "seconds"
    """The entry of the clock."""
    per: str = ""
    """The entry that it is divided by; empty: none."""
    account: str = ""
    """The stage of the time account that these seconds belong to; empty: everything else."""


@dataclass(frozen=True)
class PlottedMetric:
    """A metric that the report plots over iterations."""

    topic: str
    """The heading of the figures that it stands among."""
    metric: str
    heading: str
    unit: str = ""


@dataclass(frozen=True)
class IterationStage:
    """One stage of an iteration."""

    name: str
    """Name of its artifact: in `Iteration.made`, in MLflow's `artifacts.json` and in the report's inputs. Two stages
    that never run together may share one; their metrics and costs are then described by the first."""
    task: str
    """The name of the task that computes it."""
    seconds: float
    """Expected seconds on two cores, for the estimate of the time left."""
    groups: tuple[str, ...] = ()
    """The groups of its metrics in MLflow. If there are several, the artifact names each metric with its group."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of those of its metrics whose own names do not state them."""
    left_out: frozenset[str] = frozenset()
    """Metrics that are not recorded, since another stage has recorded the same number."""
    costs: tuple[MachineCost, ...] = ()
    plotted: tuple[PlottedMetric, ...] = ()
    tabled: tuple[str, ...] = ()
    """Metrics that the table of a run has a column of, which DVC plots and compares (`training.csv`)."""
    follows: str = ""
    """The task's input that its artifact replaces (the policy, the critic): the section `storage` sets how long such
    artifacts are kept. Empty: none, and the artifact is kept."""


STAGES: tuple[IterationStage, ...] = (
    IterationStage(
        name="rollout",
        task="rollout",
        seconds=1.0,
        groups=("rollout",),
        tabled=("success", "turns", "reply_tokens"),
        costs=(
            MachineCost("seconds/sampling", "sampling_seconds", account="sampling"),
            MachineCost("seconds/worlds", "world_seconds", account="worlds"),
            MachineCost("speed/sampled_tokens_per_second", "sampled_tokens", per="sampling_seconds"),
        ),
        plotted=(
            PlottedMetric("Episodes in training", "success", "success", SHARE),
            PlottedMetric("Episodes in training", "turns", "turns that act per episode"),
            PlottedMetric("Episodes in training", "turns/plan", "plans per episode"),
            PlottedMetric("Episodes in training", "turns/reflect", "reflections per episode"),
            PlottedMetric("Episodes in training", "turns/summary", "summaries per episode"),
            PlottedMetric("Episodes in training", "reply_tokens", "reply tokens per episode"),
        ),
    ),
    IterationStage(name="selection", task="select", seconds=0.1, groups=("selection",)),
    IterationStage(
        name="probe",
        task="probe",
        seconds=0.5,
        groups=("probe",),
        left_out=frozenset(OF_PROBE),
        costs=(MachineCost("seconds/probe"),),
    ),
    IterationStage(name="values", task="values", seconds=0.8, costs=(MachineCost("seconds/values"),)),
    IterationStage(name="reference", task="reference", seconds=0.4, costs=(MachineCost("seconds/reference"),)),
    IterationStage(
        name="greedy",
        task="rollout",
        seconds=1.0,  # of the task, which the rollout is, too
        costs=(MachineCost("seconds/greedy", "sampling_seconds"),),
    ),
    *(
        IterationStage(name=need, task="rescore", seconds=0.4, costs=(MachineCost(f"seconds/{need}"),))
        for need in RESCORED
    ),
    IterationStage(
        name="credit",
        task="credit",
        seconds=0.1,
        groups=("credit",),
        tabled=("reward", "zero_variance_groups"),
        costs=(MachineCost("seconds/credit"),),
        plotted=(
            PlottedMetric("Updates", "zero_variance_groups", "groups without signal"),
            PlottedMetric("Updates", "reward_deviation_within_groups", "deviation of rewards within groups"),
        ),
    ),
    IterationStage(name="credit", task="keep", seconds=0.1),
    IterationStage(
        name="policy",
        task="update",
        seconds=1.2,
        groups=("update",),
        tabled=("entropy", "gradient_norm", "clip_fraction_low", "clip_fraction_high", "mismatch"),
        units=dict.fromkeys(("approximate_kl", "entropy", "lag_kl", "mismatch", "mismatch_maximum"), "nats"),
        costs=(
            MachineCost("seconds/update", account="update"),
            MachineCost("speed/trained_tokens_per_second", "trained_tokens_per_second"),
            MachineCost("memory/update_peak_bytes", "peak_memory_bytes"),
        ),
        plotted=(
            PlottedMetric("Updates", "entropy", "entropy of the replies", NATS),
            PlottedMetric("Updates", "gradient_norm", "gradient norm before clipping"),
            PlottedMetric("Updates", "mismatch", "mismatch of engine and learner", NATS),
            PlottedMetric("Updates", "lag_kl", "divergence from the policy that sampled", NATS),
        ),
        follows="policy",
    ),
    IterationStage(name="policy", task="fine_tune", seconds=1.5, follows="policy"),
    IterationStage(
        name="critic",
        task="learn_values",
        seconds=1.2,
        groups=("critic",),
        costs=(MachineCost("seconds/critic", "update_seconds", account="update"),),
        follows="critic",
    ),
    IterationStage(
        name="evaluation",
        task="evaluate",
        seconds=2.0,
        groups=("validation",),
        costs=(MachineCost("seconds/evaluation", account="evaluation"),),
    ),
    IterationStage(
        name="evaluation_at_horizon",
        task="evaluate",
        seconds=2.0,
        groups=("validation_at_horizon",),
        costs=(MachineCost("seconds/evaluation", account="evaluation"),),
    ),
    IterationStage(
        name="health",
        task="health",
        seconds=0.2,
        groups=("monitor", "alarm", "horizon"),
        units=dict.fromkeys(("monitor/entropy", "monitor/kl_warm_start", "monitor/mutual_information"), "nats"),
        left_out=frozenset({"monitor/success", "monitor/gradient_norm"}),
        costs=(MachineCost("seconds/health"),),
        plotted=(
            PlottedMetric("Monitors", "monitor/invalid_replies", "replies that could not be read", SHARE),
            PlottedMetric("Monitors", "monitor/truncated_replies", "replies cut off at their longest", SHARE),
            PlottedMetric("Monitors", "monitor/repeated_phrases", "phrases repeated within a reply", SHARE),
            PlottedMetric("Monitors", "monitor/shared_phrases", "phrases shared within a group", SHARE),
            PlottedMetric("Monitors", "monitor/distinct_replies", "distinct first replies of a group", SHARE),
            PlottedMetric(
                "Monitors", "monitor/reward_deviation_of_start", "deviation of rewards, of that at the start"
            ),
            PlottedMetric("Monitors", "monitor/entropy_of_start", "entropy, of that at the start"),
            PlottedMetric("Monitors", "monitor/gradient_norm_of_median", "gradient norm, of its running median"),
            PlottedMetric("Monitors", "monitor/kl_warm_start", "divergence from the warm start", NATS),
            PlottedMetric("Monitors", "monitor/mutual_information", "mutual information of prompt and thought", "nats"),
            PlottedMetric("Monitors", "monitor/retrieval_accuracy", "prompts found by their thought", SHARE),
        ),
    ),
    IterationStage(name="returned", task="return_to", seconds=0.1, follows="policy"),
)


def iteration_artifacts(iteration: Iteration) -> Iterator[tuple[IterationStage, Reference]]:
    """The artifacts of an iteration, each with its description."""
    for name, artifact in iteration.made.items():
        yield next(stage for stage in STAGES if stage.name == name), artifact


def recorded_groups() -> dict[str, IterationStage]:
    """By group of metrics in MLflow, the stage that they are metrics of."""
    return {group: stage for stage in STAGES for group in stage.groups}


def plotted_measures() -> list[Measure]:
    """What the report plots over iterations, in order."""
    return [
        Measure(topic=each.topic, artifact=stage.name, metric=each.metric, heading=each.heading, unit=each.unit)
        for stage in STAGES
        for each in stage.plotted
    ]


def spending() -> Spending:
    """What of an iteration counts as its cost when runs are compared at equal budgets: everything but evaluations."""
    accounts_of = {stage.name: {cost.account for cost in stage.costs} for stage in STAGES}
    (sampling,) = (name for name, stage_accounts in accounts_of.items() if "sampling" in stage_accounts)
    free = frozenset(name for name, stage_accounts in accounts_of.items() if "evaluation" in stage_accounts)
    groups = recorded_groups()
    return Spending(sampling, groups["update"].name, groups["validation"].name, free)


def tabled_metrics() -> dict[str, tuple[str, ...]]:
    """By artifact of an iteration, its metrics in the table of a run, in order."""
    return {stage.name: stage.tabled for stage in STAGES if stage.tabled}


def accounts() -> list[str]:
    """The stages of the time account that an iteration's seconds belong to, in order."""
    return list(dict.fromkeys(cost.account for stage in STAGES for cost in stage.costs if cost.account))


def replaced_inputs() -> dict[str, str]:
    """By task, the input that its artifact replaces, for tasks whose artifacts follow one another."""
    return {stage.task: stage.follows for stage in STAGES if stage.follows}
