"""The choice of a learning rate for every variant, with the same small budget, before the variants are compared.

A tuning is an ablation whose variants are those of another, each at several rates: `mt-grpo-0.0004` is `mt-grpo` at a
learning rate of 0.0004. It uses a seed that the comparison does not use, and the criterion is final success on the
validation task set, so neither the compared seeds nor the test task set influence the choice. Ties go to the smaller
rate.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.results.report_data import ReportData

MEASURE = "validation/sampled"
"""The curve whose last value counts."""


def tried_rates(report: ReportData) -> dict[str, dict[float, float]]:
    """Final success (mean over seeds) for each variant and rate, with rates in ascending order.

    Raises ValueError for a variant whose name does not end with a rate.
    """
    ends: dict[str, dict[float, list[float]]] = {}
    for curve in report.curves:
        if curve.metric == MEASURE:
            variant, rate = _parts(curve.variant)
            ends.setdefault(variant, {}).setdefault(rate, []).append(curve.points[-1][1])
    return {
        variant: {rate: sum(values) / len(values) for rate, values in sorted(values_by_rate.items())}
        for variant, values_by_rate in ends.items()
    }


def best_rates(successes: Mapping[str, Mapping[float, float]]) -> dict[str, float]:
    """The rate with the highest success for every variant; ties go to the smaller rate."""
    return {variant: max(sorted(rates), key=rates.__getitem__) for variant, rates in successes.items()}


def _parts(name: str) -> tuple[str, float]:
    variant, _, rate = name.rpartition("-")
    try:
        return variant, float(rate)
    except ValueError:
        raise ValueError(
            f"a tuning's variants must be named <variant>-<learning rate>, e.g. mt-grpo-0.0004; found {name!r}"
        ) from None
