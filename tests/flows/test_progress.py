"""The share of the work that is done counts all stages that there will be."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.display import expected_work
from turnwise.config import load

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("variant", "more"),
    [
        # Of each iteration, in seconds, beside those of GRPO.
        ("{ credit: { estimator: gae } }", 0.8 + 1.2),  # values, learn_values
        ("{ optimization: { reference: { coefficient: 0.1, estimator: k2, place: loss } } }", 0.4),  # reference
        ("{ selection: { rule: uncertainty, options: { share: 0.5 } } }", 0.1),  # select
        ("{ optimization: { method: evolution } }", 0.1 + 1.5 - 0.1 - 1.2),  # keep, fine_tune; no credit, no update
    ],
)
def test_the_stages_that_a_variant_adds_are_expected(variant: str, more: float) -> None:
    iterations, seeds = 7, 3
    settings = [f"optimization.iterations={iterations}", "ablation.seeds=[1, 2, 3]", "ablation.variants=[one]"]
    base = load(ROOT / "params.yaml", settings=[*settings, "variants={one: {}}"])
    changed = load(ROOT / "params.yaml", settings=[*settings, f"variants={{one: {variant}}}"])
    assert expected_work(changed) - expected_work(base) == pytest.approx(seeds * iterations * more)
