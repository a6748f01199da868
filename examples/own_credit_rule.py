"""A credit rule of one's own, checked and compared with GRPO.

    turnwise check own_credit_rule:best_of_group          (in this folder)
    python examples/own_credit_rule.py

The best trajectories of a group share a positive advantage, and the others a negative one: only their order counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

import turnwise as tw

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


def _best_of_group(batch: tw.CreditBatch, *, share: Share = 0.25) -> tw.Ragged:
    """One advantage per turn, the same at every turn of a trajectory: 1 - p for the best, -p for the rest.

    p is the part of the group that is as good as its `share` best; a group that is all alike gets 0.
    """

    def centred(rewards: np.ndarray) -> np.ndarray:
        least = np.sort(rewards)[-max(1, int(share * len(rewards)))]
        best = rewards >= least
        return np.where(best, 1.0, 0.0) - best.mean()

    return batch.on_every_turn(batch.in_groups(batch.totals("merged"), centred))


best_of_group = tw.Estimator(_best_of_group, level="turn", grouped=True)


def main() -> None:
    """Check the rule, run it next to GRPO, and print the verdicts."""
    print("\n".join(tw.check_rule("own_credit_rule:best_of_group").lines()))
    experiment = tw.load(
        Path(__file__).with_name("small.yaml"),
        {
            "ablation": {"name": "own-credit-rule", "variants": ["grpo-or", "best-of-group"]},
            "variants": {
                "grpo-or": {},
                "best-of-group": {"credit": {"estimator": "own_credit_rule:best_of_group", "options": {"share": 0.5}}},
            },
        },
    )
    done = tw.ablation(experiment)
    print(done.report.verdicts()[["measure", "first", "second", "difference", "verdict"]].to_string(index=False))
    print(f"open {done.report.page}")


if __name__ == "__main__":
    main()
