"""How noise delays the growing horizon, and how rarely it misleads it: writes `docs/plateau.md`.

Made-up runs whose true success is known: it rises by a stated amount from window to window, or stays. A batch has some
tasks of unequal difficulty, 8 episodes each. The same seed gives the same page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from turnwise.curriculum.plateau import IterationCounts, has_levelled_off
from turnwise.seeding import generator

DOCS = Path(__file__).parent.parent / "docs"
RUNS, SEED = 400, 0
WINDOW, TOLERANCE = 5, 0.05
ITERATIONS = 30
RISE = 0.1
TASKS = (2, 4, 16, 64)
EPISODES = 8
CONCENTRATION = 2.0
"""Of the beta distribution that tasks draw their success from: the smaller, the more a task's episodes go together."""

Rule = Callable[[Sequence[IterationCounts]], bool]


def ours(batches: Sequence[IterationCounts], standard_errors: float = 2.0) -> bool:
    """As the adaptive curriculum asks."""
    earlier, recent = batches[-2 * WINDOW : -WINDOW], batches[-WINDOW:]
    return has_levelled_off(earlier, recent, tolerance=TOLERANCE, standard_errors=standard_errors)


def one_error(batches: Sequence[IterationCounts]) -> bool:
    """The same with half the caution."""
    return ours(batches, standard_errors=1.0)


def gain_alone(batches: Sequence[IterationCounts]) -> bool:
    """Whether the gain that was seen is below the tolerance, however noisy."""
    return ours(batches, standard_errors=0.0)


def patience(batches: Sequence[IterationCounts]) -> bool:
    """Whether none of the last iterations was better than the best before them, as for learning-rate schedules."""
    return max(batch.success for batch in batches[-WINDOW:]) <= max(batch.success for batch in batches[:-WINDOW])


RULES: dict[str, Rule] = {
    "ours": ours,
    "one standard error": one_error,
    "the gain alone": gain_alone,
    "patience": patience,
}


def success_of(run: int, tasks: int, rise: float) -> list[IterationCounts]:
    """One made-up run: its success rises by `rise` from window to window, from 0.2 to at most 0.8."""
    draws = generator(SEED, "plateau", run, tasks, round(rise * 1000))
    batches = []
    for iteration in range(ITERATIONS):
        mean = min(0.8, 0.2 + rise * iteration / WINDOW)
        task_rates = draws.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), size=tasks)
        batches.append(IterationCounts(tasks * EPISODES, int(draws.binomial(EPISODES, task_rates).sum()), 0))
    return batches


def first_detection(rule: Rule, batches: Sequence[IterationCounts]) -> int | None:
    """The iteration, from 1, at which a rule first says that success is level; None where it never does."""
    for iteration in range(2 * WINDOW, len(batches) + 1):
        if rule(batches[:iteration]):
            return iteration
    return None


def detections(rule: Rule, tasks: int, rise: float) -> list[int | None]:
    """When it is said in each run."""
    return [first_detection(rule, success_of(run, tasks, rise)) for run in range(RUNS)]


def page() -> str:
    rows = []
    for tasks in TASKS:
        for name, rule in RULES.items():
            early = sum(each is not None for each in detections(rule, tasks, RISE)) / RUNS
            level = sorted(each for each in detections(rule, tasks, 0.0) if each is not None)
            waited = f"{level[len(level) // 2]}" if level else "never"
            cells = [f"{tasks} x {EPISODES}", name, f"{early:.0%}", f"{len(level) / RUNS:.0%}", waited]
            rows.append(f"| {' | '.join(cells)} |")
    return f"""# When has success levelled off?

Written by `python -m benchmarks.plateau`, with the code that lets a horizon grow (`turnwise.curriculum.plateau`).

{RUNS} made-up runs of {ITERATIONS} iterations each, asked at every iteration from the {2 * WINDOW}th on. Where success
rises, here by {RISE:g} from window to window, a rule that says it is level lets the horizon grow too early. That cannot
be mended, since it never shrinks: the third column counts the runs in which it happens at all. Where success is level,
a rule that does not see it wastes iterations: the last columns count the runs in which it is seen, and give the
iteration of the middle one of these.

`ours` adds two standard errors to the gain from a window of {WINDOW} iterations to the next, and asks whether that is
at most {TOLERANCE:g}; `the gain alone` adds none. `patience` asks whether {WINDOW} iterations brought nothing better
than the best before them, as schedules of learning rates do.

| batch (tasks x episodes) | rule | said while rising | seen where level | at iteration |
|---|---|---|---|---|
{chr(10).join(rows)}

With 16 tasks and more the rule seldom errs and waits for a few iterations. With less it still errs several times less
often than the others, and pays for it by waiting; a larger `standard_errors` or `window` buys more caution.
"""


def main() -> None:
    text = page()
    (DOCS / "plateau.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
