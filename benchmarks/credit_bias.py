"""Which credit rules are biased, in numbers: writes `docs/credit-bias.md` and `docs/credit-bias.png`.

The same seed gives the same page. `turnwise.checking.credit_bias` says what is computed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from turnwise.checking.credit_bias import BASELINES, DEVIATIONS, PROBLEMS, DecisionProblem, Rule, RuleBias, examine

DOCS = Path(__file__).parent.parent / "docs"
GROUP_SIZE, GROUPS, SEED = 4, 400_000, 0
GROUP_SIZES = (2, 4, 8, 16, 32)
COLOURS, MARKERS = ("#0072B2", "#D55E00", "#009E73"), ("o", "s", "^")


def main() -> None:
    baselines = [examine(problem, BASELINES, group_size=GROUP_SIZE, groups=GROUPS, seed=SEED) for problem in PROBLEMS]
    deviations = [examine(problem, DEVIATIONS, group_size=GROUP_SIZE, groups=GROUPS, seed=SEED) for problem in PROBLEMS]
    (DOCS / "credit-bias.md").write_text(page(baselines, deviations), encoding="utf-8")
    draw(baselines).savefig(DOCS / "credit-bias.png", dpi=150, metadata={"Software": None})
    for problem, verdicts in zip(PROBLEMS, baselines, strict=True):
        sys.stdout.write(f"{problem.title}\n")
        for verdict in verdicts:
            shares = ", ".join(f"{share:.3f}" for share in verdict.shares)
            sys.stdout.write(f"  {verdict.rule.title}: keeps {shares} of the gradient: {verdict.finding}\n")


def page(baselines: Sequence[Sequence[RuleBias]], deviations: Sequence[Sequence[RuleBias]]) -> str:
    two, three = ({verdict.rule.title: verdict for verdict in verdicts} for verdicts in baselines)
    right, included = "return-to-go", "return-to-go, itself in the mean"
    index, padded = "per-index, to go", "padded, to go"
    return f"""# Which credit rules are biased

Written by `python -m benchmarks.credit_bias`, with the code that trains (`turnwise.credit.estimate`).

A policy that chooses when to stop changes how many trajectories reach a turn. Two problems small enough to enumerate
show what each rule makes of that: their true policy gradient is known exactly, and so is what a rule estimates on
average. Beside it stands what {GROUPS:,} groups of {GROUP_SIZE} trajectories gave.

* **`per-index` is biased.** Of the first choice's gradient it keeps {two[index].shares[0]:.0%} with two turns; at the
  second choice of three turns it has the wrong sign. Turn rewards are normalised among those who reach the turn, so
  that what a turn pays is never a reason to reach it. Larger groups do not help.
* **A group mean that includes the trajectory itself distorts.** What is kept, turn by turn: {_shares(two[included])}
  with two turns, {_shares(three[included])} with three. The fewer trajectories reach a turn, the less of it is learned.
* **`padded`, summed to go, only rescales**, by (G - 1) / G: {_shares(two[padded])} and {_shares(three[padded])}.
  Without the sum it is biased.
* **`return-to-go` against the others is unbiased**: {_shares(two[right])} and {_shares(three[right])}. What was sampled
  agrees within {max(_distance(two[right]), _distance(three[right])):.1f} standard errors.
* **`rloo` is unbiased as well.** Which of the two varies less depends on the problem: see the last column. Few others
  at a late turn make a poor baseline for `return-to-go`; rewards that are already paid are noise for `rloo`.
* **Dividing by a deviation of the group distorts every rule here**, since the deviation depends on what was sampled.
  That is why `return-to-go` leaves the scale alone unless told otherwise.

![The share of the true gradient that each rule keeps](credit-bias.png)

The figure shows the means over {GROUPS:,} groups; their 95% intervals are narrower than the marks.

## The problems

In each state the policy takes the first choice with probability sigmoid(logit). `r` is a turn reward, `o` an outcome.

{_problems()}

## Baselines

In each cell: the mean over groups, its standard error, and the share of the truth that the rule keeps, exactly. The
last column is the standard deviation of one group's estimate, state by state. `deviation: none` throughout; turns are
summed and trajectories averaged. A rule that keeps equal shares changes the length of a step, others its direction.
`gigpo` judges every turn twice, in its episode and at its state, which is why it keeps more than all. `maxrl` and
`grpo-passk` follow other objectives, log(success) and the best of a group; `turn-reinforce` mixes early turns with late
ones in its mean. Rules with a critic have one that knows the true values, so that they are unbiased, but for
`bi-level-gae`, which discounts later turns unless told otherwise: what theirs is wrong by is their bias.
`information-gain` and `trace` pay what a turn adds to the probability of the likeliest end, which here has nothing to
do with reward. `self-distillation` has the teacher that makes it unbiased; nothing says that a real one is near it.
`tree-grpo` and `at2po` have no row: their episodes depend on one another.

{_tables(baselines)}
## Deviations

The same, divided by the unbiased deviation, as GRPO does (epsilon as by default).

{_tables(deviations)}
## Group size

Shares of the truth that are kept with two turns, for the first and the second choice, exactly. What comes of counting
the trajectory itself fades as groups grow; the bias of `per-index` at the first choice stays.

{_group_sizes()}
"""


def _shares(verdict: RuleBias) -> str:
    return " / ".join(f"{share:.1%}" for share in verdict.shares)


def _distance(verdict: RuleBias) -> float:
    """The largest distance of what was sampled from the truth, in standard errors."""
    return float((abs(verdict.mean - verdict.truth) / verdict.standard_error).max())


def _problems() -> str:
    lines = ["| problem | state | logit | first choice | second choice |", "|---|---|---|---|---|"]
    for problem in PROBLEMS:
        for name, state in problem.states.items():
            first, second = (
                f"r {choice.reward:g}, " + (f"then *{choice.then}*" if choice.then else f"o {choice.outcome:g}, ends")
                for choice in (state.first, state.second)
            )
            lines.append(f"| {problem.title} | {name} | {state.logit:g} | {first} | {second} |")
    return "\n".join(lines)


def _tables(problem_verdicts: Sequence[Sequence[RuleBias]]) -> str:
    return "\n".join(_table(problem, verdicts) for problem, verdicts in zip(PROBLEMS, problem_verdicts, strict=True))


def _table(problem: DecisionProblem, verdicts: Sequence[RuleBias]) -> str:
    lines = [f"| {problem.title} | {' | '.join(problem.states)} | finding | deviation of one group |"]
    lines.append("|---|" + "---|" * (len(problem.states) + 2))
    lines.append(f"| **truth** | {' | '.join(f'**{value:.4f}**' for value in verdicts[0].truth)} | | |")
    for verdict in verdicts:
        cells = [
            f"{mean:.4f} ± {error:.5f} ({share:.1%})"
            for mean, error, share in zip(verdict.mean, verdict.standard_error, verdict.shares, strict=True)
        ]
        deviations = ", ".join(f"{value:.3f}" for value in verdict.deviation)
        lines.append(f"| {_name(verdict.rule)} | {' | '.join(cells)} | {verdict.finding} | {deviations} |")
    return "\n".join(lines) + "\n"


def _name(rule: Rule) -> str:
    options = ", ".join(
        f"{option}: {str(value).lower() if isinstance(value, bool) else value}"
        for option, value in rule.options.items()
        if option != "deviation"
    )
    return f"{rule.title} (`{rule.estimator}`; {options})"


def _group_sizes() -> str:
    rules = (*BASELINES, *(rule for rule in DEVIATIONS if rule.estimator == "grpo"))
    selected = [rule for rule in rules if rule.estimator in ("mt-grpo", "grpo") and "own turn" not in rule.title]
    lines = ["| rule | " + " | ".join(f"G = {size}" for size in GROUP_SIZES) + " |"]
    lines.append("|---|" + "---|" * len(GROUP_SIZES))
    verdicts = [examine(PROBLEMS[0], selected, group_size=size, groups=GROUPS, seed=SEED) for size in GROUP_SIZES]
    for place, rule in enumerate(selected):
        divided = ", divided by the deviation" if rule in DEVIATIONS else ""
        lines.append(f"| {rule.title}{divided} | " + " | ".join(_shares(each[place]) for each in verdicts) + " |")
    return "\n".join(lines)


def draw(problem_verdicts: Sequence[Sequence[RuleBias]]) -> Figure:
    figure = Figure(figsize=(11, 1.3 + 0.2 * len(BASELINES)), layout="constrained")
    axes = figure.subplots(1, len(problem_verdicts), sharey=True)
    for panel, problem, verdicts in zip(axes, PROBLEMS, problem_verdicts, strict=True):
        _draw_problem(panel, problem, verdicts)
    axes[0].set_yticks(range(len(BASELINES)), [rule.title for rule in BASELINES])
    axes[0].set_ylim(len(BASELINES) - 0.5, -0.5)
    return figure


def _draw_problem(panel: Axes, problem: DecisionProblem, verdicts: Sequence[RuleBias]) -> None:
    panel.axvline(1.0, color="#22262b", linewidth=1.2)
    panel.axvline(0.0, color="#c3cad0", linewidth=1.0)
    for place, verdict in enumerate(verdicts):
        right = verdict.finding == "unbiased"
        panel.text(
            1.62,
            place,
            verdict.finding,
            va="center",
            fontsize=9,
            color="#0072B2" if right else "#5d646b",
            fontweight="bold" if right else "normal",
        )
    for turn, state in enumerate(problem.states):
        panel.errorbar(
            [verdict.mean[turn] / verdict.truth[turn] for verdict in verdicts],
            [place + 0.22 * (turn - (len(problem.states) - 1) / 2) for place in range(len(verdicts))],
            xerr=[1.96 * verdict.standard_error[turn] / abs(verdict.truth[turn]) for verdict in verdicts],
            fmt=MARKERS[turn],
            color=COLOURS[turn],
            markersize=5.5,
            capsize=2,
            label=f"turn {turn + 1}: {state}",
        )
    panel.set_xlim(-0.4, 2.1)
    panel.set_xlabel("share of the true gradient that is kept", fontsize=9)
    panel.set_xticks([0.0, 0.5, 0.75, 1.0, 1.5], ["0", "0.5", "0.75", "1\ntruth", "1.5"])
    panel.set_title(problem.title, fontsize=11, loc="left", fontweight="bold")
    panel.grid(axis="y", color="#eef0f2", linewidth=6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelsize=9)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.legend(
        frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(-0.02, -0.11), ncols=len(problem.states)
    )


if __name__ == "__main__":
    main()
