"""When may seeds end? Simulated looks on the way: writes `docs/science/sequential.md`.

The same seed gives the same page. Of each way to decide a pair while seeds are added, it is counted how often a
difference is called where there is none, how often one that is there is found, and with how many seeds. The differences
over seeds are drawn from a normal, from runs that learn or collapse, and from those that this repository's own pages of
claims have recorded, centred and brought to one deviation. The bounds are those of `turnwise.statistics.sequential`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy import special

from turnwise.config.schema import SeedsUntil
from turnwise.seeding import generator
from turnwise.statistics.sequential import looks_until, nominal_levels
from turnwise.statistics.until_decided import Looks

SCIENCE = Path(__file__).parent.parent / "docs" / "science"
SEED, SIMULATIONS, LEVEL = 0, 4_000, 0.05
FIRST, STEP, AT_MOST = 3, 1, 20
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Differences, in deviations of the differences over seeds."""
FEWEST_RUNS = 5
"""The fewest pairs of runs of a comparison whose differences are drawn from."""
SWAPS = 512
"""How many ways to swap the sides are drawn for a permutation test."""
RACES, VARIANTS = 400, 3
RULES: Mapping[str, SeedsUntil] = {
    name: SeedsUntil.model_validate({"until": "decided", "at_most": AT_MOST, **options})
    for name, options in {
        "as it is": {},
        "`step: 3`": {"step": 3},
        f"`first: {AT_MOST}`, one look": {"first": AT_MOST},
    }.items()
}
"""The rules by which whole races are run: the default, a longer step, and all seeds at once."""

CLAIM_EFFECTS, CORRELATIONS = (0.0, 1.0, 2.0), (0.0, 0.5, 0.9)
"""How much the raced measure differs, in deviations, and how it correlates with the measure of the claim."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def recorded_differences() -> np.ndarray:
    """Differences of runs with the same seed, of all pages of claims, centred and with deviation 1 in each pair."""
    samples = []
    for path in sorted((SCIENCE / "data").glob("*.json")):
        judgement = json.loads(path.read_text(encoding="utf-8"))["report"]["judgement"] or {}
        for pair in judgement.get("pairs", []):
            sample = np.array(pair["difference"]["sample"])
            if len(sample) >= FEWEST_RUNS and sample.std() > 0:
                samples.append((sample - sample.mean()) / sample.std())
    return np.concatenate(samples)


def learn_or_collapse(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences of runs of which seven of ten learn and the others collapse, with deviation 1."""
    one, other = (np.where(random.random(shape) < 0.7, 0.8, 0.2) + random.normal(0, 0.04, shape) for _ in range(2))
    return (one - other) / np.sqrt(2 * (0.6**2 * 0.21 + 0.04**2))


RECORDED = recorded_differences()
POPULATIONS: Mapping[str, Draw] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "recorded": lambda random, shape: random.choice(RECORDED, shape),
    "learn or collapse": learn_or_collapse,
}


def t_values(sample: np.ndarray) -> np.ndarray:
    """The t statistic of the first n columns of [simulations, seeds], for every n from 2."""
    counts = np.arange(1, sample.shape[1] + 1)
    sums, squares = sample.cumsum(axis=1), (sample**2).cumsum(axis=1)
    variances = (squares - sums**2 / counts)[:, 1:] / (counts[1:] - 1)
    return sums[:, 1:] / np.sqrt(np.maximum(variances, 1e-300) * counts[1:])


def p_values(sample: np.ndarray) -> np.ndarray:
    """The two-sided p of the paired t test with n seeds, for every n from 2."""
    freedom = np.arange(1, sample.shape[1])
    return 2 * special.stdtr(freedom, -np.abs(t_values(sample)))


def permutation_p(sample: np.ndarray, looks: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """The two-sided p of the test that swaps sides, at each look; estimated from `SWAPS` of the ways, drawn once."""
    signs = random.choice((-1.0, 1.0), (SWAPS, sample.shape[1]))
    ps = []
    for seeds in looks:
        swapped, sums = np.abs(sample[:, :seeds] @ signs[:, :seeds].T), np.abs(sample[:, :seeds].sum(axis=1))
        ps.append((1 + (swapped >= sums[:, None] - 1e-9).sum(axis=1)) / (1 + SWAPS))
    return np.array(ps).T


def mixture_p(sample: np.ndarray) -> np.ndarray:
    """1 over the t test's mixture martingale (Lai 1976), an anytime-valid p, for every n from 2.

    The effect is mixed over a normal with variance 1, the deviation over the right Haar measure.
    """
    counts = np.arange(2, sample.shape[1] + 1)
    squared, freedom = t_values(sample) ** 2, counts - 1
    growth = (1 + squared / freedom) / (1 + squared / ((1 + counts) * freedom))
    return np.minimum(1.0, np.sqrt(1 + counts) * growth ** (-counts / 2))


def decided_at(crossed: np.ndarray, looks: tuple[int, ...]) -> tuple[float, float]:
    """The share of simulations [simulations, looks] that cross a bound, and the mean seeds until then or the last."""
    ever = crossed.any(axis=1)
    seeds = np.where(ever, np.array(looks)[crossed.argmax(axis=1)], looks[-1])
    return float(ever.mean()), float(seeds.mean())


def decisions(sample: np.ndarray, random: np.random.Generator) -> dict[str, tuple[float, float]]:
    """By way to decide, the share of simulations that call a difference and their mean seeds."""
    looks = looks_until(FIRST, STEP, AT_MOST)
    at = np.array(looks) - 2
    p = p_values(sample)
    flips = permutation_p(sample, looks, random)
    fleming, pocock = (np.array(nominal_levels(looks, AT_MOST, LEVEL, kind)) for kind in ("O'Brien-Fleming", "Pocock"))
    return {
        f"{AT_MOST} seeds, one look": decided_at(p[:, [AT_MOST - 2]] <= LEVEL, (AT_MOST,)),
        "5 seeds, one look": decided_at(p[:, [3]] <= LEVEL, (5,)),
        "each look at 0.05, uncorrected": decided_at(p[:, at] <= LEVEL, looks),
        "t test, O'Brien and Fleming's spending": decided_at(p[:, at] <= fleming, looks),
        "t test, Pocock's spending": decided_at(p[:, at] <= pocock, looks),
        "permutations, Pocock's spending": decided_at(flips <= pocock, looks),
        "mixture martingale (confidence sequence)": decided_at(mixture_p(sample)[:, at] <= LEVEL, looks),
    }


def race(results: np.ndarray, rule: SeedsUntil, worth: float) -> tuple[Looks, int]:
    """A race over results [variants, seeds] as `turnwise.training_runs.seeds` runs it, and how many runs it took."""
    runs: dict[str, dict[int, dict[str, float]]] = {str(name): {} for name in range(len(results))}
    while (looks := Looks(runs, {}, rule, worth=worth)).wanted:
        for name, seed in looks.wanted:
            value = float(results[int(name), seed - 1])
            runs[name][seed] = {"one task": value, "another": value}  # no doubt is from tasks
    return looks, sum(map(len, runs.values()))


def races(draw: Draw, rule: SeedsUntil, shift: float, random: np.random.Generator) -> tuple[float, float, float, float]:
    """Of races of which the last variant is `shift` higher, and as much is worth having, or 1 where it is 0.

    Returns the shares of races with a false decision and with a worthy difference falsely ruled out, the share of true
    statements among the pairs, and the mean number of runs. Differences have deviation 1.
    """
    worth = shift or 1.0
    false, missed, true, runs = 0, 0, 0, 0
    for _ in range(RACES):
        results = draw(random, (VARIANTS, AT_MOST)) / 2**0.5
        results[-1] += shift
        looks, race_runs = race(results, rule, worth)
        runs += race_runs
        last = str(VARIANTS - 1)
        apart = [(shift > 0 and last in (each.first, each.second), each.decision) for each in looks.race.comparisons]
        false += any(decision == "decided" and not differs for differs, decision in apart)
        missed += any(decision == "ruled out" and differs for differs, decision in apart)
        true += sum(decision == ("decided" if differs else "ruled out") for differs, decision in apart)
    pairs = VARIANTS * (VARIANTS - 1) // 2
    return false / RACES, missed / RACES, true / (RACES * pairs), runs / RACES


def false_claims(draw: Draw, effect: float, correlation: float, random: np.random.Generator) -> tuple[float, ...]:
    """How often a claim is called on a measure without a difference, in races that another measure ends.

    The raced measure differs by `effect` and ends the race; the differences of the two measures correlate. Returns the
    shares of simulations that call the claim by its sequential p (`lab.science.claim_verdicts`), by the p of the seeds
    that there are in the end, and by the smallest p of all looks.
    """
    looks = looks_until(FIRST, STEP, AT_MOST)
    at, bounds = np.array(looks) - 2, np.array(nominal_levels(looks, AT_MOST, LEVEL))
    raced, other = draw(random, (2, SIMULATIONS, AT_MOST))
    claimed = correlation * raced + (1 - correlation**2) ** 0.5 * other
    crossed = p_values(raced + effect)[:, at] <= bounds
    last = np.where(crossed.any(axis=1), crossed.argmax(axis=1), len(looks) - 1)
    reached = np.arange(len(looks)) <= last[:, None]
    p = p_values(claimed)[:, at]
    return (
        float(((p <= bounds) & reached).any(axis=1).mean()),
        float((p[np.arange(SIMULATIONS), last] <= LEVEL).mean()),
        float(((p <= LEVEL) & reached).any(axis=1).mean()),
    )


def page_of_claims() -> str:
    """What a claim on another measure than the raced one errs."""
    lines = [
        "",
        "## A claim on another measure",
        "",
        "A page of claims also tests measures that did not decide when the race ended, such as entropy where success",
        "did. Here the claimed measure has no difference, and its differences over seeds correlate with those of the",
        "raced one, which differs by 0, 1 or 2 deviations and so ends the race. A cell has how often the claim is",
        "called, in %: by the sequential p that the pages use, by the p of the seeds that there are in the end, and by",
        f"the smallest p of all looks; {SIMULATIONS:,} simulations. The sequential p keeps its level, and is the more",
        "careful the earlier another measure ends the race.",
    ]
    for name, draw in POPULATIONS.items():
        lines += ["", f"| {name}: correlation | " + " | ".join(f"{effect:g}" for effect in CLAIM_EFFECTS) + " |"]
        lines.append("|---" * (len(CLAIM_EFFECTS) + 1) + "|")
        for correlation in CORRELATIONS:
            cells = [
                false_claims(draw, effect, correlation, generator(SEED, "claims", name)) for effect in CLAIM_EFFECTS
            ]
            texts = (", ".join(f"{100 * share:.1f}" for share in cell) for cell in cells)
            lines.append(f"| {correlation:g} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    shares = {
        (name, effect): decisions(
            effect + draw(generator(SEED, "sequential", name), (SIMULATIONS, AT_MOST)), generator(SEED, "swaps", name)
        )
        for name, draw in POPULATIONS.items()
        for effect in EFFECTS
    }
    raced = {
        (name, rule, shift): races(POPULATIONS[name], RULES[rule], shift, generator(SEED, "races", name))
        for name in ("normal", "recorded")
        for rule in RULES
        for shift in (0.0, 1.0, 2.0)
    }
    text = page(shares) + page_of_races(raced) + page_of_claims()
    (SCIENCE / "sequential.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def page_of_races(raced: Mapping[tuple[str, str, float], tuple[float, float, float, float]]) -> str:
    """What the rule of an ablation comes to, over whole races."""
    error = 100 * (LEVEL * (1 - LEVEL) / RACES) ** 0.5
    lines = [
        "",
        "## What an ablation does",
        "",
        f"With `ablation.seeds: {{until: decided, at_most: {AT_MOST}}}` all variants begin with seeds 1 to {FIRST}.",
        "At each look every pair that has not ended is asked two things, by sequential p values: whether its variants",
        "differ, and whether a difference as large as is worth having is ruled out (both one-sided t tests).",
        "Holm's method over the pairs keeps each kind of error at 5 % for all pairs and looks together. A pair that",
        "is decided or ruled out ends, and is reported as it was then; a variant whose pairs have ended gets no more",
        "seeds. A look is at whole seeds of all that race: what is decided follows from results, not from who made",
        "the runs and when.",
        "",
        f"Whole races of {VARIANTS} variants, by the code that an ablation runs, {RACES} of each: 5 % is known to",
        f"{error:.1f}. The last variant is 0, 1 or 2 deviations higher; as much is worth having, and 1 where it is 0.",
        "A cell has the races with a false decision, those with a true difference ruled out, the pairs of which the",
        f"truth was said (in %), and the mean number of runs of at most {VARIANTS * AT_MOST}.",
    ]
    for name in dict.fromkeys(name for name, _, _ in raced):
        lines += ["", f"| {name} | 0 | 1 | 2 |", "|---|---|---|---|"]
        for rule in RULES:
            cells = [raced[name, rule, shift] for shift in (0.0, 1.0, 2.0)]
            texts = (f"{100 * a:.1f}, {100 * b:.1f}, {100 * c:.0f}, {d:.1f}" for a, b, c, d in cells)
            lines.append(f"| {rule} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def page(shares: Mapping[tuple[str, float], Mapping[str, tuple[float, float]]]) -> str:
    """The page: a table for each population, with how often a difference is called and the mean seeds."""
    error = 100 * (LEVEL * (1 - LEVEL) / SIMULATIONS) ** 0.5
    lines = [
        "# When seeds may end",
        "",
        "Written by `python -m benchmarks.sequential`; the statistics are in `turnwise.statistics.sequential`.",
        "",
        f"A pair of variants gets seeds one by one, from {FIRST} to at most {AT_MOST}; after each it is asked whether",
        "the difference is decided. A cell has how often a difference is called, in %, and the mean number of seeds,",
        f"over {SIMULATIONS:,} simulations. Differences are in deviations of the differences over seeds. Where the",
        f"difference is 0, 5 % is the error rate that must hold; it is known to {error:.2f} (one standard error).",
        "",
        "**The choice is the t test with O'Brien and Fleming's spending.** Its error rate is within two standard",
        f"errors of 5 % for all three, and its power near that of {AT_MOST} seeds, with fewer. Pocock's spending ends",
        "sooner and errs more on recorded differences: its first looks rest on three or four seeds. Signs that are",
        "permuted (AdaStop permutes runs) and the mixture martingale err less, for more seeds and less power.",
    ]
    for name in POPULATIONS:
        lines += ["", f"## Differences over seeds: {name}", ""]
        if name == "recorded":
            lines += [f"Drawn from {len(RECORDED)} differences of runs that the pages of claims have recorded.", ""]
        lines += ["| | " + " | ".join(f"{effect:g}" for effect in EFFECTS) + " |", "|---" * (len(EFFECTS) + 1) + "|"]
        for way in shares[name, 0.0]:
            cells = [shares[name, effect][way] for effect in EFFECTS]
            lines.append(f"| {way} | " + " | ".join(f"{100 * share:.1f}, {seeds:.1f}" for share, seeds in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
