"""What a sweep found: how each candidate did on the validation task set, and which did best.

The statistics are those of an ablation whose variants are the candidates: means with intervals over seeds, and pairs
compared with Holm's correction. The best of several candidates is partly lucky, so its own number is too high; what it
is worth is told by a comparison on test tasks with other seeds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from turnwise.config.sweeps import Candidate
from turnwise.reporting.data.tables import TextTable, as_csv
from turnwise.reporting.formatting import bounds, number, with_bounds
from turnwise.results.outcomes import Outcomes
from turnwise.statistics import Interval, Judgement
from turnwise.statistics.verdict import VariantResult

OPPOSITE = {"higher": "lower", "lower": "higher"}
DIGITS = 2


@dataclass(frozen=True)
class SweepReport:
    """The candidates of a sweep and how they compare."""

    candidates: list[Candidate]
    seeds: list[int]
    tasks: int
    """How many validation tasks each run was evaluated on."""
    judgement: Judgement
    """Over the candidates with a result: all but those of which a fault has left out every run."""
    outcomes: Outcomes | None = None
    """The runs that were ended early, which count, and those that a fault has left out; None where there are none."""

    @property
    def means(self) -> dict[str, Interval]:
        """The mean of each candidate that has a result, by name."""
        return {standing.name: standing.mean for standing in self.judgement.standings}

    @property
    def best(self) -> VariantResult:
        """The candidate with the best mean; of equal ones the first."""
        return max(self.judgement.standings, key=lambda standing: standing.mean.value)

    @property
    def winner(self) -> Candidate:
        """The values of the best."""
        return next(each for each in self.candidates if each.name == self.best.name)

    def than_best(self, name: str) -> str:
        """How a candidate compares with the best."""
        if name not in self.means:
            return "left out"
        if name == self.best.name:
            return "the best"
        for pair in self.judgement.pairs:
            if {pair.first, pair.second} == {name, self.best.name}:
                return pair.verdict if pair.first == name else OPPOSITE.get(pair.verdict, pair.verdict)
        raise ValueError(f"{name} must be one of the candidates")

    def table(self) -> TextTable:
        """One row per candidate: its values, its mean with the interval over seeds, and how it compares."""
        keys, rows = list(self.candidates[0].values), []
        for each in self.candidates:
            mean = self.means.get(each.name)
            cells = ("–", "–") if mean is None else (number(mean.value, DIGITS), bounds(mean, DIGITS) or mean.absence)
            rows.append([*(str(each.values[key]) for key in keys), *(cell or "–" for cell in cells)])
            rows[-1].append(self.than_best(each.name))
        short_names = [key.rpartition(".")[2] for key in keys]
        columns = [*short_names, self.judgement.measure, "95 % interval", "against the best"]
        seeds = ", ".join(map(str, self.seeds))
        notes = [f"On the {self.tasks} validation tasks; the interval is over the seeds {seeds}."]
        if self.outcomes is not None:
            notes += self.outcomes.sentences()
        return TextTable("sweep", "Sweep", columns, rows, [*notes, *self.judgement.notes])

    def finding(self) -> str:
        """The result in a few sentences."""
        values = ", ".join(f"{key} {value}" for key, value in self.winner.values.items())
        text = f"Best: {values}, with {self.judgement.measure} {with_bounds(self.best.mean, DIGITS)}."
        alike = [each.name for each in self.candidates if self.than_best(each.name) == "not distinguishable"]
        if alike:
            text += f" Not distinguishable from it: {', '.join(alike)}."
        return (
            f"{text} The best of several is partly lucky: a comparison with other seeds, on test tasks, says what it "
            "is worth."
        )

    def to_json(self) -> str:
        """Everything that was found, for other programs."""
        rows: list[dict[str, Any]] = []
        for each in self.candidates:
            row: dict[str, Any] = {"name": each.name, "values": dict(each.values)}
            row["than_best"] = self.than_best(each.name)
            if (mean := self.means.get(each.name)) is not None:
                runs = dict(zip(map(str, self.seeds_of(each.name)), mean.sample, strict=True))
                row |= {"mean": mean.value, "interval": [mean.low, mean.high], "runs": runs}
            rows.append(row | self._outcome_entries(each.name))
        content = {
            "measure": self.judgement.measure,
            "split": "validation",
            "tasks": self.tasks,
            "seeds": self.seeds,
            "best": dict(self.winner.values),
            "candidates": rows,
        }
        return json.dumps(content, indent=1) + "\n"

    def seeds_of(self, name: str) -> list[int]:
        """The seeds of a candidate's runs that count."""
        missing = set() if self.outcomes is None else {run.seed for run in self.outcomes.left_out_of(name)}
        return [seed for seed in self.seeds if seed not in missing]

    def _outcome_entries(self, name: str) -> dict[str, Any]:
        """The entries of a candidate on its runs that were ended early or left out, by seed; only those there are."""
        if self.outcomes is None:
            return {}
        ended = {str(run.seed): {"iteration": run.iteration, "by": run.by} for run in self.outcomes.ended_of(name)}
        left_out = {str(run.seed): run.message for run in self.outcomes.left_out_of(name)}
        return {what: runs for what, runs in (("ended", ended), ("left_out", left_out)) if runs}

    def to_csv(self) -> bytes:
        """One line per candidate and seed."""
        keys = list(self.candidates[0].values)
        rows = [
            (*(each.values[key] for key in keys), seed, repr(value))
            for each in self.candidates
            if (mean := self.means.get(each.name)) is not None
            for seed, value in zip(self.seeds_of(each.name), mean.sample, strict=True)
        ]
        return as_csv([*keys, "seed", self.judgement.measure], rows)
