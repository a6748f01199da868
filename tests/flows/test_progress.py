"""The share of the work that is done counts all stages that there will be, and bars fit a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from flows.runtime.display import bars, expected_work
from turnwise.experiment import load

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"


@pytest.mark.parametrize(
    ("variant", "more"),
    [
        # Of each iteration, in seconds, in addition to those of GRPO.
        ("{ credit: { estimator: gae } }", 0.8 + 1.2),  # values, learn_values
        ("{ optimization: { reference: { coefficient: 0.1, estimator: k2, place: loss } } }", 0.4),  # reference
        ("{ selection: { rule: uncertainty, options: { share: 0.5 } } }", 0.1),  # select
        ("{ optimization: { method: evolution } }", 0.1 + 1.5 - 0.1 - 1.2),  # keep, fine_tune; no credit, no update
    ],
)
def test_the_stages_that_a_variant_adds_are_expected(variant: str, more: float) -> None:
    iterations, seeds = 7, 3
    settings = [f"optimization.iterations={iterations}", "ablation.seeds=[1, 2, 3]", "ablation.variants=[one]"]
    base = load(PARAMETERS, settings=[*settings, "variants={one: {}}"])
    changed = load(PARAMETERS, settings=[*settings, f"variants={{one: {variant}}}"])
    assert expected_work(changed) - expected_work(base) == pytest.approx(seeds * iterations * more)


def test_on_a_narrow_terminal_words_are_cut_and_bars_and_times_are_whole() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    shown = bars(console)
    shown.add_task("everything", total=100, completed=75, note="about 1600 s left  success 0.22")
    label = "random-filter seed 5 iteration 24: evaluate"
    shown.add_task(label, total=100, completed=100, note="evaluation: sampled 100 of 100")
    with console.capture() as captured:
        console.print(shown.get_renderable())
    lines = captured.get().splitlines()
    assert len(lines) == 2 and all(len(line) <= 80 for line in lines)
    assert all(line.rstrip().endswith("0:00:00") for line in lines)
    assert "75%" in lines[0] and "about 1600 s left" in lines[0] and "━" * 6 in lines[0]
    assert "100%" in lines[1] and "random-filter seed 5" in lines[1] and "…" in lines[1]
