"""Recorded runs, read back: results, curves, episodes, turns with their advantages, and policies.

    recorded = runs("credit")                     the runs of an ablation, or of the latest
    recorded.curves()                             a pandas DataFrame: one row per run and iteration
    recorded["mt-grpo seed 1"].policy().model     a transformers model

MLflow names what a run has made and the store holds it: nothing is computed here but what had been pruned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from flows.runtime.process_settings import prepare_process
from tasks.restoring import MODELS
from turnwise.agent.episode_rewards import summed
from turnwise.data.metrics import episode_value
from turnwise.errors import ConfigurationError
from turnwise.exports.conversations import write_conversations
from turnwise.exports.other_trackers import write_for
from turnwise.exports.policy import policy_of, require_empty, selected_iteration, write_policy
from turnwise.project import home
from turnwise.records.episodes import baseline_episodes, in_training, on_task_sets, weighted_return
from turnwise.records.metrics import curves_of, evaluation_metrics
from turnwise.records.record import recorded_here, recorded_store
from turnwise.reporting.data.episodes import Occasion, ShownEpisode, Wanted
from turnwise.reporting.data.run_groups import grouped, how_tested, judged
from turnwise.reporting.data.suites import SuiteReport, collect_suite
from turnwise.reporting.data.tables import VERDICTS_HEADER, comparison_rows
from turnwise.statistics import Judgement
from turnwise.statistics.evaluation_protocol import require_comparable
from turnwise.store import Reference
from turnwise.suggestions import meant
from turnwise.tracking.finding import RecordedRun

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Mode = Literal["greedy", "sampled"]
Row = dict[str, Any]
"""A row of a table: values under the names of its columns."""


@dataclass(frozen=True)
class OpenedPolicy:
    """A policy of a recorded run, as transformers opens it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    """Where it lies in Hugging Face's layout, with a card."""
    reference: Reference


class RecordedRuns(Sequence[RecordedRun]):
    """Runs that are recorded in MLflow, in the order in which they were started.

    An index is a number, the name of a run or a variant: `runs[0].artifacts`, `runs["mt-grpo seed 1"].policy()`.
    """

    def __init__(self, found: Sequence[RecordedRun], tracking: str) -> None:
        self._runs, self.tracking = tuple(found), tracking

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RecordedRun]:
        return iter(self._runs)

    @overload
    def __getitem__(self, which: int) -> RecordedRun: ...
    @overload
    def __getitem__(self, which: slice | str) -> RecordedRuns: ...
    def __getitem__(self, which: int | slice | str) -> RecordedRun | RecordedRuns:
        if isinstance(which, int):
            return self._runs[which]
        if isinstance(which, slice):
            return RecordedRuns(self._runs[which], self.tracking)
        matches = [run for run in self._runs if which in (run.name, run.artifacts.variant)]
        if not matches:
            known = [run.name for run in self._runs]
            raise ConfigurationError(
                f"a run must be one of {', '.join(known)}, or a variant; found {which!r}{meant(which, known)}",
                "TW-unknown-run",
            )
        return RecordedRuns(matches, self.tracking)

    def __repr__(self) -> str:
        return f"<{len(self)} runs: {', '.join(run.name for run in self._runs)}>"

    @property
    def one(self) -> RecordedRun:
        """The only run. Raises ConfigurationError where there are several."""
        if len(self._runs) > 1:
            names = " or ".join(repr(run.name) for run in self._runs)
            raise ConfigurationError(
                f"RUN must name one run; this names {len(self._runs)}: say {names}", "TW-several-runs"
            )
        return self._runs[0]

    def results(self) -> pd.DataFrame:
        """The metrics on the test tasks, one row per run, then one per baseline policy and warm start.

        `kind` is `run` or `baseline`; variant and seed are missing where there are none. Where a guard or
        an alarm has ended a run, `ended_at` and `ended_by` say after which iteration, and by what.
        """
        rows: list[Row] = []
        for run in self._runs:
            artifacts = run.artifacts
            if artifacts.test is not None:
                test_metrics = evaluation_metrics("test", artifacts.test, artifacts.test_at_horizon)
                end = run.ended
                end_columns = {} if end is None else {"ended_at": end.iteration, "ended_by": end.reason}
                rows.append(_run_columns(run) | {"kind": "run"} | end_columns | test_metrics)
        for name, reference in dict.fromkeys(each for run in self._runs for each in run.baselines.items()):
            rows.append({"run": name, "kind": "baseline"} | evaluation_metrics("test", reference, None))
        return _frame(rows)

    def curves(self) -> pd.DataFrame:
        """Every metric over the iterations: one row per run and iteration, a column per metric, as MLflow names them.

        Iteration 0 is the warm start. A metric that an iteration did not measure is missing (NaN).
        """
        return _frame(
            [
                _run_columns(run) | {"iteration": number} | metrics
                for run in self._runs
                for number, metrics in curves_of(run.artifacts).items()
            ]
        )

    def trajectories(
        self,
        split: Occasion = "training",
        *,
        mode: Mode | None = None,
        iterations: tuple[int, int] | None = None,
        baselines: bool = False,
    ) -> pd.DataFrame:
        """Episodes, one row each: task, group, ending, success, turns, rewards and metrics by name.

        Args:
            split: the batches that were trained on, or the evaluations on the validation or the test tasks.
            mode: of evaluations: only greedy or only sampled episodes.
            iterations: first and last, both included; None: all.
            baselines: with those of the baseline policies and the warm start, on the test tasks.
        """
        return _frame(list(_episode_rows(self._episodes(split, mode, iterations, baselines))))

    def turns(
        self,
        split: Occasion = "training",
        *,
        mode: Mode | None = None,
        iterations: tuple[int, int] | None = None,
        baselines: bool = False,
    ) -> pd.DataFrame:
        """Turns, one row each: observation, reply, actions, rewards, and in training the advantage.

        `token_advantages` has a list per turn where the credit rule judges tokens. `group`, `replica` and `turn` name a
        turn within its iteration. All arguments are as in `trajectories`.
        """
        return _frame(list(_turn_rows(self._episodes(split, mode, iterations, baselines))))

    def judgement(self, *, success: float = 0.8, anyway: bool = False) -> Judgement:
        """The statistical comparison of the runs' variants, by the world's primary metric on the test tasks.

        Args:
            success: the success whose first time is reported.
            anyway: compare even runs that were not tested alike.

        Raises:
            ConfigurationError: the runs were not tested alike, or one has not been tested.
        """
        groups = grouped(self._runs)
        if not anyway:
            require_comparable(how_tested(groups))
        return judged(groups, success)

    def verdicts(self, *, anyway: bool = False) -> pd.DataFrame:
        """`judgement` as a table: one row per comparison, with its interval, p, corrected p and verdict."""
        import pandas as pd

        rows = comparison_rows(self.judgement(anyway=anyway))
        return pd.DataFrame(rows, columns=list(VERDICTS_HEADER))

    def suite(self, *, rules: Sequence[str] = (), worlds: Sequence[str] = ()) -> SuiteReport:
        """Rules compared over worlds: interquartile means, ranks and performance profiles, and what is missing.

        `rules` are variants and `worlds` names of worlds; empty: all that these runs have.
        """
        return collect_suite(self._runs, rules, worlds)

    def export(self, folder: Path, *, iteration: int | None = None, best: bool = False) -> Reference:
        """Write the policy of the only run into an empty folder, for transformers and vLLM, with a model card.

        `iteration` counts updates, 0 is the warm start; by default the final policy; `best` takes the evaluated
        iteration with the most success in validation. Raises ConfigurationError for several runs, an iteration that
        was not made, and a folder that holds something.
        """
        require_empty(folder)
        number = selected_iteration(self.one.artifacts, iteration, best)
        policy = policy_of(self.one.artifacts, number)
        write_policy(self.one, policy, number, folder, MODELS.whole_policy)
        return policy

    def export_conversations(self, folder: Path) -> dict[Occasion, int]:
        """Write the solved episodes of the only run into an empty folder, as a dataset in Hugging Face's layout.

        Returns how many there are of each occasion. Raises ConfigurationError for several runs, a folder that holds
        something, and where none is solved.
        """
        require_empty(folder)
        return write_conversations(self.one, folder)

    def export_curves(self, tracker: Literal["tensorboard", "wandb"], folder: Path) -> None:
        """Write the metrics of all runs, by iteration, into an empty folder as the files of another tracker.

        Nothing is sent anywhere. Raises ConfigurationError where the tracker's package is not installed, and for a
        folder that holds something.
        """
        require_empty(folder)
        write_for(tracker, self._runs, folder)

    def policy(self, *, iteration: int | None = None, best: bool = False) -> OpenedPolicy:
        """The policy of the only run as a transformers model on the CPU, with its tokenizer.

        It is written to the project's home once. Arguments and errors are as in `export`.
        """
        prepare_process()
        from transformers import AutoModelForCausalLM, AutoTokenizer

        number = selected_iteration(self.one.artifacts, iteration, best)
        policy = policy_of(self.one.artifacts, number)
        folder = home() / "exported" / self.one.id / policy.digest
        if not folder.exists():
            write_policy(self.one, policy, number, folder, MODELS.whole_policy)
        return OpenedPolicy(
            AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False),
            AutoTokenizer.from_pretrained(folder, trust_remote_code=False),
            folder,
            policy,
        )

    def _episodes(
        self, split: Occasion, mode: Mode | None, iterations: tuple[int, int] | None, baselines: bool
    ) -> Iterator[tuple[Row, ShownEpisode]]:
        """The episodes, each with what names its run."""
        wanted = Wanted(occasion=split, mode=mode, iterations=iterations)
        seen: set[tuple[str, Reference]] = set()  # evaluations of baselines, which the runs of an ablation share
        for run in self._runs:
            batches = range(1, len(run.artifacts.iterations) + 1)
            for episode in [*in_training(run, wanted, batches), *on_task_sets(run, wanted)]:
                yield _run_columns(run), episode
            if baselines:
                new = {name: each for name, each in run.baselines.items() if (name, each) not in seen}
                seen.update(new.items())
                for episode in baseline_episodes(replace(run, baselines=new), wanted):
                    yield {"run": episode.policy}, episode


def runs(*wanted: str, tracking: str | None = None) -> RecordedRuns:
    """The recorded runs that are named: by the id, name or tag of runs or ablations; without any the latest ablation.

    `tracking` is MLflow's store, by default the project's. Raises ConfigurationError where there are none.
    """
    prepare_process()
    uri = recorded_store(tracking)
    by_id = {run.id: run for each in wanted or ("",) for run in recorded_here(uri, each)}
    return RecordedRuns(list(by_id.values()), uri)


def _run_columns(run: RecordedRun) -> Row:
    return {"run": run.name, "variant": run.artifacts.variant, "seed": run.artifacts.seed}


def _frame(rows: list[Row]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)


def _episode_rows(episodes: Iterable[tuple[Row, ShownEpisode]]) -> Iterator[Row]:
    """One row per episode, after what names its run.

    `return` is the weighted sum of rewards as in training; `reward/NAME` and `world/NAME` are raw sums over the turns.
    """
    for run_columns, episode in episodes:
        trajectory = episode.sample.trajectory
        yield {
            **run_columns,
            **_where(episode),
            "ending": trajectory.ending.value,
            "success": trajectory.success,
            "turns": int(episode_value(trajectory, "turns")),
            "reply_tokens": int(episode_value(trajectory, "reply_tokens")),
            "return": weighted_return(episode.sample),
            **{f"reward/{name}": value for name, value in summed([turn.rewards for turn in trajectory.turns]).items()},
            **{f"world/{name}": value for name, value in summed([turn.metrics for turn in trajectory.turns]).items()},
        }


def _turn_rows(episodes: Iterable[tuple[Row, ShownEpisode]]) -> Iterator[Row]:
    """One row per turn, after what names its run and its episode; `advantage` is None where it was not trained on."""
    for run_columns, episode in episodes:
        sample = episode.sample
        for place, turn in enumerate(sample.trajectory.turns):
            yield {
                **run_columns,
                **_where(episode),
                "turn": place,
                "kind": turn.kind.value,
                "observation": turn.observation,
                "reply": turn.reply,
                "thought": turn.thought,
                "actions": list(turn.actions),
                "invalid": turn.invalid,
                "effective": turn.effective,
                "reply_tokens": len(turn.reply_tokens),
                "log_probability": math.fsum(turn.log_probabilities),
                "advantage": None if sample.advantages is None else sample.advantages[place],
                "token_advantages": None if sample.token_advantages is None else sample.token_advantages[place],
                **{f"reward/{name}": value for name, value in turn.rewards.items()},
                **{f"world/{name}": value for name, value in turn.metrics.items()},
            }


def _where(episode: ShownEpisode) -> Row:
    trajectory = episode.sample.trajectory
    return {
        "iteration": episode.iteration,
        "split": episode.occasion,
        "mode": episode.mode,
        "task": episode.task,
        "group": trajectory.group,
        "replica": trajectory.replica,
    }
