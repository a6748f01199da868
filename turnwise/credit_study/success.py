"""Whether a rule that comes close to the true advantages is one that learns: closeness and success, rule by rule.

Closeness is what a study says of a rule (`MEASURES`), success what recorded runs that were trained with it came to
after an equal budget, of sampled tokens or of seconds. `predict` correlates the ranks of the two over rules. Its
interval is a percentile bootstrap over rules and seeds: rules are drawn with replacement, and for each as many of its
seeds as it has. There is none where all resamples agree: it would have width 0, and claim a certainty that is not
there. Closeness is taken as it was measured, on the tasks of the study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.credit_study.study import RuleFigures, Study
from turnwise.credit_study.truth import RESAMPLES, percentile_interval, ratio
from turnwise.seeding import generator
from turnwise.statistics import Interval
from turnwise.statistics.curves import AtEqualBudget

Vector = NDArray[np.float64]
FEWEST_RULES = 4
"""Fewest rules over which ranks are correlated: of three, every order is likely by chance."""


def _agreement_reader(name: str) -> Callable[[RuleFigures], Interval | None]:
    return lambda rule: getattr(rule.agreement, name, None)


def _right_signs(rule: RuleFigures) -> Interval | None:
    wrong = None if rule.agreement is None else rule.agreement.sign_errors
    if wrong is None:
        return None
    low, high = (None, None) if wrong.low is None or wrong.high is None else (1 - wrong.high, 1 - wrong.low)
    return Interval(1 - wrong.value, low, high, wrong.over, wrong.count, wrong.level, wrong.method)


MEASURES: Mapping[str, Callable[[RuleFigures], Interval | None]] = {
    "correlation": _agreement_reader("correlation"),
    "rank correlation": _agreement_reader("rank_correlation"),
    "right signs": _right_signs,
    "cosine": lambda rule: rule.gradient.cosine,
}
"""How close a rule comes to the truth, each 1 for the truth itself: of advantages, among the replies of a state, where
the truth is certain, and of the gradient."""


@dataclass(frozen=True)
class Trained:
    """A rule that runs were trained with."""

    variant: str
    rule: RuleFigures
    success: Interval
    """After the budget, on the validation tasks, over seeds; `sample` has the value of each."""


@dataclass(frozen=True)
class Prediction:
    """Spearman's correlation of a measure of closeness with success, over rules."""

    measure: str
    correlation: float | None
    """None where there are fewer than `FEWEST_RULES` rules with the measure, or all are alike in one of the two."""
    low: float | None
    high: float | None
    rules: int

    @property
    def spelled(self) -> str:
        """The correlation with its interval, in words and numbers."""
        if self.correlation is None:
            return f"{self.rules} rules: no rank correlation"
        within = "no interval" if self.low is None else f"{self.low:.2f} to {self.high:.2f}"
        return f"rank correlation {self.correlation:.2f} ({within})"


@dataclass(frozen=True)
class SuccessStudy:
    """Closeness and success of the rules of a recorded ablation."""

    trained: tuple[Trained, ...]
    without: tuple[str, ...]
    """Variants whose rule the study does not judge."""
    axis: str
    """What the runs have spent equally: `sampled_tokens` or `seconds`."""
    budget: str
    """Such as `12,345 sampled tokens`."""
    predictions: tuple[Prediction, ...]
    """One for each of `MEASURES`."""


def success_study(study: Study, titles: Mapping[str, str], at_budget: AtEqualBudget, *, seed: int) -> SuccessStudy:
    """Hold each variant's success at a budget against what the study says of its rule, whose title `titles` has."""
    success = at_budget.shown
    rules = {rule.title: rule for rule in study.figures}
    trained = tuple(
        Trained(name, rules[titles[name]], interval) for name, interval in success.items() if titles[name] in rules
    )
    without = tuple(name for name in success if titles[name] not in rules)
    predictions = tuple(predict(measure, trained, seed=seed) for measure in MEASURES)
    return SuccessStudy(trained, without, at_budget.budget, at_budget.heading, predictions)


def predict(measure: str, trained: Sequence[Trained], *, seed: int) -> Prediction:
    """How well a measure of closeness orders the rules by their success."""
    pairs = [(closeness.value, each.success) for each in trained if (closeness := MEASURES[measure](each.rule))]
    if len(pairs) < FEWEST_RULES:
        return Prediction(measure, None, None, None, len(pairs))
    closeness_values = np.array([value for value, _ in pairs])
    value = float(rank_correlations(closeness_values[None], np.array([[success.value for _, success in pairs]]))[0])
    if not math.isfinite(value):
        return Prediction(measure, None, None, None, len(pairs))
    draw = generator(seed, "bootstrap over rules and seeds")
    rules = draw.integers(len(pairs), size=(RESAMPLES, len(pairs)))
    means = np.empty(rules.shape)
    for place, (_, success) in enumerate(pairs):
        sample = np.array(success.sample or (success.value,))
        seed_means = sample[draw.integers(len(sample), size=(*rules.shape, len(sample)))].mean(axis=2)
        means = np.where(rules == place, seed_means, means)
    resamples = rank_correlations(closeness_values[rules], means)
    interval = percentile_interval(value, resamples, len(pairs))
    return Prediction(measure, value, interval.low, interval.high, len(pairs))


def rank_correlations(one: Vector, other: Vector) -> Vector:
    """Spearman's correlation of each row of [samples, rules] with that of the other; NaN where a row is constant."""
    from scipy.stats import rankdata

    ranks = (rankdata(values.round(12), axis=1) for values in (one, other))
    first, second = (values - values.mean(axis=1, keepdims=True) for values in ranks)
    return ratio((first * second).sum(axis=1), np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1)))
