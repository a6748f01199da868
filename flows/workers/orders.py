"""A run as a worker is asked for it, and how the worker makes it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from flows.runtime.flow_runs import run_flow
from flows.runtime.sampler import Sampler
from flows.train import train
from flows.workers.reports import Began, Ended, Iterated, Made, Reporter
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.runs.state import Iteration, Prepared, Run
from turnwise.store import Reference


class RunOrder(BaseModel):
    """One variant with one seed, which any process of this home can train and test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    """The whole ablation's."""
    prepared: dict[str, Reference]
    variant: str
    seed: int
    tested: bool = True
    """Whether its final policy is played on the test task set."""
    samples_ahead: bool = False
    """Whether the worker has rollouts sampled ahead in a further process, where `rollout.lag` allows it."""

    @property
    def name(self) -> str:
        """The name of the run wherever it is shown."""
        return f"{self.variant} seed {self.seed}"


def read_order(text: str, last: RunOrder | None) -> RunOrder:
    """In a worker: an order from JSON. Where it is of the last one's ablation, the world is not made again."""
    order = RunOrder.model_validate_json(text)
    same = last is not None and last.experiment == order.experiment
    return order.model_copy(update={"experiment": last.experiment}) if last is not None and same else order


def make_ordered(order: RunOrder, reporter: Reporter, sampler: Sampler | None = None) -> None:
    """In a worker: make the run and report it. Stages whose results are stored already are found there.

    It is a flow run with the tags of the ablation; Prefect's pages do not list it as a part of the ablation's flow run,
    which is in another process.
    """

    def began(run: Run) -> None:
        reporter.send(
            Began(
                models=run.models,
                start=run.start,
                start_at_horizon=run.start_at_horizon,
                start_warning=run.start_warning,
            )
        )

    def iterated(run: Run, iteration: Iteration) -> None:
        reporter.send(Iterated(latest=run.iterations[-2:]))

    own = order.experiment.variant(order.variant)
    try:
        run = run_flow(
            train,
            own,
            Prepared(**order.prepared),
            order.variant,
            order.seed,
            iterated,
            sampler,
            on_start=began,
            tested=order.tested,
        )
    except TrainingEnded as error:
        reporter.send(Ended(reason=str(error), fault=error.fault))
        return
    reporter.send(
        Made(
            experiment=run.experiment,
            models=run.models,
            iterations=run.iterations,
            ended=run.ended,
            test=run.test,
            test_at_horizon=run.test_at_horizon,
        )
    )
