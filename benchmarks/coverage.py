"""Do the intervals hold? Simulated runs with a known truth: writes `docs/science/coverage.md` and `coverage.json`.

The same seed gives the same page. Of each interval that the reports show, and of those that papers use instead, it is
counted how often it holds the truth, at 3, 5 and 10 seeds. The formulas are those of `turnwise.statistics`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics.pairs import two_sample_spread, two_way_spread
from turnwise.statistics.seeds import CUT, interquartile_mean_error, mean_error
from turnwise.statistics.significance import holm
from turnwise.statistics.tasks import wilson

SCIENCE = Path(__file__).parent.parent / "docs" / "science"
SEED, SIMULATIONS, RESAMPLES, LEVEL = 0, 2000, 500, 0.95
SEEDS = (3, 5, 10)
TASKS = 100
POPULATION = 2_000_000
"""Draws by which a population's mean and interquartile mean are known."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Figures = dict[str, dict[str, float]]


def learn_or_collapse(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Seven runs of ten learn, the others collapse."""
    learns = random.random(shape) < 0.7
    return np.where(learns, random.normal(0.8, 0.04, shape), random.normal(0.2, 0.04, shape))


POPULATIONS: Mapping[str, Draw] = {
    "normal": lambda random, shape: random.normal(0.6, 0.1, shape),
    "uniform": lambda random, shape: random.uniform(0.0, 1.0, shape),
    "skewed towards 1 (beta 8, 1)": lambda random, shape: random.beta(8.0, 1.0, shape),
    "skewed upwards (exponential)": lambda random, shape: 0.2 + 0.1 * random.exponential(size=shape),
    "at its bound (many runs reach 1)": lambda random, shape: np.minimum(1.0, random.normal(0.97, 0.05, shape)),
    "heavy tails (t with 3 degrees)": lambda random, shape: 0.6 + 0.05 * random.standard_t(3, shape),
    "learn or collapse (7 : 3)": learn_or_collapse,
}
"""What the success of a run may be distributed like."""


def main() -> None:
    figures = {
        "mean": {name: mean_coverage(name, draw) for name, draw in POPULATIONS.items()},
        "interquartile mean": {name: interquartile_coverage(name, draw) for name, draw in POPULATIONS.items()},
        "pairs": {name: pair_coverage(name, *scenario) for name, scenario in SCENARIOS.items()},
        "families": {str(seeds): family_errors(seeds) for seeds in SEEDS},
        "Wilson": {f"{tasks} tasks, success {truth:g}": wilson_coverage(tasks, truth) for tasks, truth in PROPORTIONS},
    }
    SCIENCE.mkdir(parents=True, exist_ok=True)
    (SCIENCE / "coverage.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (SCIENCE / "coverage.md").write_text(page(figures), encoding="utf-8")
    sys.stdout.write(page(figures))


def mean_coverage(name: str, draw: Draw) -> Figures:
    """By method and number of seeds: how often the interval of the mean holds the population's."""
    truth = float(draw(generator(SEED, "population", name), (POPULATION,)).mean())
    figures: Figures = {"Student's t (used)": {}, "percentile bootstrap": {}, "studentised bootstrap": {}}
    for seeds in SEEDS:
        runs = draw(generator(SEED, "runs", name, seeds), (SIMULATIONS, seeds))
        means, error = runs.mean(axis=1), mean_error(runs)
        resamples = resampled(runs, name)
        figures["Student's t (used)"][str(seeds)] = share_of(abs(means - truth) <= quantile(seeds - 1) * error)
        figures["percentile bootstrap"][str(seeds)] = within_percentiles(resamples.mean(axis=2), truth)
        figures["studentised bootstrap"][str(seeds)] = studentised(resamples, means, error, truth)
    return figures


def interquartile_coverage(name: str, draw: Draw) -> Figures:
    """The same of the interquartile mean; its truth is the mean of the middle half of the population."""
    population = draw(generator(SEED, "population", name), (POPULATION,))
    low, high = np.quantile(population, [CUT, 1 - CUT])
    truth = float(population[(population >= low) & (population <= high)].mean())
    figures: Figures = {"larger of two errors (used)": {}, "Tukey and McLaughlin": {}, "percentile bootstrap": {}}
    for seeds in SEEDS:
        runs = draw(generator(SEED, "runs", name, seeds), (SIMULATIONS, seeds))
        distance = abs(stats.trim_mean(runs, CUT, axis=1) - truth)
        resamples = stats.trim_mean(resampled(runs, name), CUT, axis=2)
        ours = quantile(seeds - 1) * interquartile_mean_error(runs)
        figures["larger of two errors (used)"][str(seeds)] = share_of(distance <= ours)
        figures["Tukey and McLaughlin"][str(seeds)] = share_of(distance <= tukey_mclaughlin(runs))
        figures["percentile bootstrap"][str(seeds)] = within_percentiles(resamples, truth)
    return figures


def resampled(runs: np.ndarray, name: str) -> np.ndarray:
    """Resamples of every simulation's runs: [simulations, resamples, seeds]."""
    seeds = runs.shape[1]
    return runs[:, generator(SEED, "resamples", name, seeds).integers(seeds, size=(RESAMPLES, seeds))]


def studentised(resamples: np.ndarray, means: np.ndarray, error: np.ndarray, truth: float) -> float:
    """The studentised bootstrap; resamples without spread, which it cannot use, are left out."""
    errors = mean_error(resamples)
    usable = np.where(errors > 1e-12, errors, np.nan)
    ratios = (resamples.mean(axis=2) - means[:, None]) / usable
    # Where all runs are equal no resample has spread: there is no interval, and it holds nothing.
    ratios[np.isnan(ratios).all(axis=1)] = 0.0
    low, high = np.nanquantile(ratios, TAILS, axis=1)
    return share_of((means - high * error <= truth) & (truth <= means - low * error))


def tukey_mclaughlin(runs: np.ndarray) -> np.ndarray:
    """Half the width of the interval of the paper: the winsorised deviation alone, with t(h - 1)."""
    seeds = runs.shape[1]
    cut = int(CUT * seeds)
    ordered = np.sort(runs, axis=1)
    winsorised = np.clip(ordered, ordered[:, [cut]], ordered[:, [seeds - 1 - cut]])
    remaining = seeds - 2 * cut
    return quantile(remaining - 1) * mean_error(winsorised) * seeds / remaining


SCENARIOS: Mapping[str, tuple[float, float, bool]] = {
    "runs vary, all tasks alike": (0.3, 0.0, True),
    "variants favour different tasks, runs vary": (0.1, 1.0, True),
    "variants favour different tasks, runs do not vary": (0.0, 1.0, True),
    "neither varies, only replicas do": (0.0, 0.0, True),
    "runs vary, seeds of their own": (0.3, 0.0, False),
    "variants favour different tasks, seeds of their own": (0.1, 1.0, False),
}
"""By name: the deviation of runs and of what tasks favour, in log-odds, and whether both sides have the same seeds."""


def alike(name: str, seeds: int, run_deviation: float, task_deviation: float, variants: int) -> np.ndarray:
    """Variants that are equally good, [variants, simulations, seeds, tasks]: four replicas of tasks of any difficulty.

    Which variant favours which tasks is drawn per simulation, so that on the tasks of all the world none is better.
    """
    random = generator(SEED, "alike", name, seeds)
    difficulty = random.normal(0.5, 1.2, (1, SIMULATIONS, 1, TASKS))
    favoured = random.normal(0.0, task_deviation, (variants, SIMULATIONS, 1, TASKS))
    luck = random.normal(0.0, run_deviation, (variants, SIMULATIONS, seeds, 1))
    return random.binomial(4, 1 / (1 + np.exp(-(difficulty + favoured + luck)))) / 4


def pair_coverage(name: str, run_deviation: float, task_deviation: float, paired: bool) -> Figures:
    """How often the interval of the difference of two variants that are alike holds 0."""
    figures: Figures = {"two-way, Student's t (used)": {}, "seeds alone, Student's t": {}}
    figures["seeds and tasks resampled, percentiles"] = {}
    for seeds in SEEDS:
        first, second = alike(name, seeds, run_deviation, task_deviation, 2)
        hits = p_values(first, second, paired) >= 1 - LEVEL
        figures["two-way, Student's t (used)"][str(seeds)] = share_of(hits)
        figures["seeds alone, Student's t"][str(seeds)] = share_of(seeds_alone(first, second, paired) >= 1 - LEVEL)
        figures["seeds and tasks resampled, percentiles"][str(seeds)] = both_resampled(first, second, paired)
    return figures


def p_values(first: np.ndarray, second: np.ndarray, paired: bool) -> np.ndarray:
    """Of every simulation, as `turnwise.statistics.pairs.difference` finds it."""
    spread = two_way_spread(first - second) if paired else two_sample_spread(first, second)
    return 2 * stats.t.sf(abs(first.mean(axis=(1, 2)) - second.mean(axis=(1, 2))) / spread.error, spread.freedom)


def seeds_alone(first: np.ndarray, second: np.ndarray, paired: bool) -> np.ndarray:
    """The p of the t test over the means of runs, as most papers have it."""
    means = first.mean(axis=2), second.mean(axis=2)
    test = stats.ttest_rel(*means, axis=1) if paired else stats.ttest_ind(*means, axis=1, equal_var=False)
    return test.pvalue


def both_resampled(first: np.ndarray, second: np.ndarray, paired: bool) -> float:
    """Percentiles of means over resampled seeds and, each time, resampled tasks (Owen 2007)."""
    seeds = first.shape[1]
    random = generator(SEED, "pairs", seeds)
    differences = np.empty((RESAMPLES, SIMULATIONS))
    for place in range(RESAMPLES):
        tasks = weights(random, TASKS)
        one = weights(random, seeds)
        other = one if paired else weights(random, seeds)
        differences[place] = one @ (first @ tasks).T - other @ (second @ tasks).T
    return within_percentiles(differences.T, 0.0)


def weights(random: np.random.Generator, count: int) -> np.ndarray:
    """How often each of so many is drawn in a resample, as a share."""
    return np.bincount(random.integers(count, size=count), minlength=count) / count


VARIANTS = 4


def family_errors(seeds: int) -> dict[str, float]:
    """Of four variants that are alike: how often some pair of the six is called different."""
    variants = alike("family", seeds, 0.2, 0.3, VARIANTS)
    pairs = [(one, other) for one in range(VARIANTS) for other in range(one)]
    pair_ps = np.array([p_values(variants[one], variants[other], True) for one, other in pairs])
    corrected = np.array([holm(column) for column in pair_ps.T.tolist()])
    return {
        "uncorrected": share_of(pair_ps.min(axis=0) < 1 - LEVEL),
        "Holm (used)": share_of(corrected.min(axis=1) < 1 - LEVEL),
    }


PROPORTIONS = ((20, 0.5), (20, 0.95), (100, 0.5), (100, 0.95), (100, 0.99))


def wilson_coverage(tasks: int, truth: float) -> dict[str, float]:
    """How often Wilson's interval of a proportion holds the truth, exactly, and the usual one, p +- 1.96 s."""
    counts = np.arange(tasks + 1)
    chance = stats.binom.pmf(counts, tasks, truth)
    intervals = [wilson(int(count), tasks) for count in counts]
    ours = [each.low is not None and each.high is not None and each.low <= truth <= each.high for each in intervals]
    share = counts / tasks
    usual = abs(share - truth) <= stats.norm.ppf(TAILS[1]) * np.sqrt(share * (1 - share) / tasks)
    return {"Wilson (used)": float(chance[np.array(ours)].sum()), "normal approximation": float(chance[usual].sum())}


TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


def quantile(freedom: int) -> float:
    return float(stats.t.ppf(TAILS[1], freedom))


def within_percentiles(resamples: np.ndarray, truth: float) -> float:
    low, high = np.quantile(resamples, TAILS, axis=1)
    return share_of((low <= truth) & (truth <= high))


def share_of(hits: np.ndarray) -> float:
    return float(np.mean(hits))


def page(figures: Mapping[str, Mapping[str, Mapping[str, object]]]) -> str:
    error = 100 * (LEVEL * (1 - LEVEL) / SIMULATIONS) ** 0.5
    return f"""# What the intervals cover

Written by `python -m benchmarks.coverage`, with the code that the reports use (`turnwise.statistics`).

An interval of 95 % should hold the truth in 95 of 100 repetitions of the whole experiment. Here the truth is known:
each figure is the share of {SIMULATIONS:,} simulated experiments whose interval held it, in percent. Where the true
figure is 95, simulation errs by {error:.1f} points (one standard error). Bootstraps draw {RESAMPLES} resamples. Where
all runs are equal there is no interval, which counts as one that does not hold.

**What was chosen.** Student's t for the mean and for the interquartile mean: with three seeds it is the only one that
comes near 95 %; both bootstraps fall far short. With five seeds and more the studentised bootstrap covers a skewed
population a few points better. Its failure at three seeds weighs more here, and one rule for all is easier to trust
than two. For pairs, the two-way interval over seeds and tasks.

**What none can do.** Where runs either learn or collapse, three runs often are all of one kind, and no interval made of
them can know of the other kind. Such variants need more seeds; the report shows every seed as a point for that reason.

## The mean over seeds

{table(figures["mean"])}

## The interquartile mean over seeds

The truth is the mean of the middle half of the population. With three seeds nothing is cut, and the estimate is the
mean.

{table(figures["interquartile mean"])}

## Pairs of variants that are alike

Each variant is run with so many seeds and tested on the same {TASKS} tasks with four replicas. The truth is that the
difference is 0 over all seeds and tasks: the figures are also the share of pairs that are called "not distinguishable".
Seeds alone cover what other seeds would show on the same tasks, and are too narrow as soon as variants favour different
tasks. Resampling both is too narrow where runs vary and there are few, and too wide where they do not.

{table(figures["pairs"])}

## Several pairs at once

Of four variants that are alike: the share of experiments in which one or more of the six pairs is called different.
It should be 5 % at most. With three seeds it is not: six comparisons ask for p-values of less than 1 %, and how many
degrees of freedom three runs leave is itself too uncertain so far out. With five seeds it comes near, with ten it is.

{family_table(figures["families"])}

## Proportions of tasks

Exact, not simulated.

{family_table(figures["Wilson"])}
"""


def table(subjects: Mapping[str, Mapping[str, object]]) -> str:
    """One row per subject and method, one column per number of seeds."""
    lines = ["| | interval | " + " | ".join(f"{seeds} seeds" for seeds in SEEDS) + " |"]
    lines.append("|---|---|" + "---:|" * len(SEEDS))
    for subject, methods in subjects.items():
        for place, (method, shares) in enumerate(methods.items()):
            assert isinstance(shares, Mapping)
            cells = [f"{100 * shares[str(seeds)]:.1f}" for seeds in SEEDS]
            if "(used)" in method:
                cells = [f"**{cell}**" for cell in cells]
            lines.append(f"| {'' if place else subject} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def family_table(rows: Mapping[str, Mapping[str, object]]) -> str:
    """One row per subject, one column per method."""
    methods = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(methods) + " |", "|---|" + "---:|" * len(methods)]
    for name, shares in rows.items():
        subject = f"{name} seeds" if name.isdigit() else name
        lines.append(f"| {subject} | " + " | ".join(f"{100 * float(str(shares[m])):.1f}" for m in methods) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
