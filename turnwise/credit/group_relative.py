"""GRPO, Tree-GRPO and RLOO: every turn of a trajectory gets the trajectory's reward, relative to those of its group.

    grpo   A_i = norm(R)_i          norm(x)_i   = (x_i - mean(x)) / (deviation(x) + epsilon)
    rloo   A_i = others(R)_i        others(x)_i = x_i - mean of the other x = G / (G - 1) (x_i - mean(x))

    tree-grpo   A_i = b norm(R over the branches of its tree)_i + c norm(R over its group)_i

    outcome (GRPO-OR):  R_i = outcome_i
    merged  (GRPO-MR):  R_i = sum of turn rewards_i + outcome_i

Papers: DeepSeekMath (arXiv 2402.03300) for GRPO; Ahmadian et al. (arXiv 2402.14740) for RLOO, as AgentGym-RL (arXiv
2509.08755) uses it; MT-GRPO (arXiv 2505.11821, section 4) for the two rewards, which it calls GRPO-OR and GRPO-MR. With
the whole trajectory as one sequence `grpo` is RAGEN's StarPO (arXiv 2504.20073), and with `deviation: none` Dr.GRPO's
advantage (arXiv 2503.20783).

`tree-grpo`: Tree-GRPO (Ji et al., arXiv 2509.21240), on groups of trees (`turnwise.agent.branching`); b and c are
`within` and `across`, 1 in its release's mode `tree`; c = 0 is `tree_inner`. The first turns, which several branches
share, are in each of them, and get the sum of their advantages: what the branches below a turn earn is its credit. A
tree of which one branch is left has nothing within. Bias: `across` as in `grpo`, but the mean is over branches that
depend on one another, so that the scale (G - 1) / G is not exact; `within` leaves the turns that a whole tree shares
without signal; both count a turn as often as there are branches that go through it.

Bias: `rloo` is unbiased for any number of turns. `grpo` with `deviation: none` is `rloo` times (G - 1) / G; dividing by
a deviation gives groups different weights. In both, a turn's advantage includes rewards from before the turn, which
adds variance.

epsilon, added to the deviation, is an option: its default, 1e-4, is MT-GRPO's and TRL's; verl, SkyRL and RAGEN have
1e-6, OpenRLHF 1e-9. With rewards of 0 and 1 in groups of eight the choice changes an advantage by up to 3e-4 of it.

The deviation is what differs between systems: unbiased, divided by G - 1 (verl, TRL, MT-GRPO); population, divided by G
(rLLM, ART); none (Dr.GRPO, which leaves the scale of the rewards alone); batch (TRL's `scale_rewards: batch` and ROLL):
the unbiased one of all rewards of the batch, one divisor for all groups, so that no group weighs more than another for
its small spread. Sums are exact (`math.fsum`), so that they do
not depend on the order of trajectories. Values that are equal but for rounding (`turnwise.data.tolerance`) give exactly
0, so that a zero-variance group can be recognised by its advantages. All rules that compare within a group use the
functions of this file.

Differs from the papers: a zero-variance group gets exactly 0. A group of one gets 0 and a warning, not NaN: the size of
a group does not depend on the policy, so leaving the group out adds no bias.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import repeat
from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative, Number
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.tolerance import alike

Deviation = Literal["unbiased", "population", "none"]
BatchDeviation = Literal["unbiased", "population", "none", "batch"]
"""A deviation of the group, or the unbiased one of the rewards of the whole batch."""

NO_BASELINE = "a trajectory that has no other to be compared with has no baseline: it gets 0"


def grpo(
    batch: CreditBatch,
    *,
    rewards: Rewards = "outcome",
    deviation: BatchDeviation = "unbiased",
    epsilon: NotNegative = 1e-4,
) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too."""
    totals = batch.totals(rewards)
    if deviation == "batch":
        differences = batch.in_groups(totals, lambda values: normalise(values, "none", epsilon))
        return batch.on_every_turn(differences / scale(totals, "unbiased", epsilon))
    return batch.on_every_turn(batch.in_groups(totals, lambda values: normalise(values, deviation, epsilon)))


def tree_grpo(
    batch: CreditBatch,
    *,
    rewards: Rewards = "outcome",
    within: Number = 1.0,
    across: Number = 1.0,
    deviation: Deviation = "unbiased",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Needs `trees`. Token rewards count, too."""
    assert batch.trees is not None, "`estimate` asks for what is needed"
    totals, group = batch.totals(rewards), np.array(batch.group, dtype=np.int64)
    _, tree = np.unique(np.stack([group, np.array(batch.trees, dtype=np.int64)]), axis=1, return_inverse=True)
    tree_advantages = np.zeros(len(batch))
    for members in [np.flatnonzero(tree == each) for each in range(tree.max(initial=-1) + 1)]:
        tree_advantages[members] = standardised(totals[members], deviation, epsilon)
    group_advantages = batch.in_groups(totals, lambda values: normalise(values, deviation, epsilon))
    return batch.on_every_turn(within * tree_advantages + across * group_advantages)


def rloo(batch: CreditBatch, *, rewards: Rewards = "outcome") -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too."""
    for members in batch.members.values():
        if len(members) == 1:
            warnings.warn(NO_BASELINE, stacklevel=2)
    return batch.on_every_turn(batch.in_groups(batch.totals(rewards), against_others))


def normalise(values: Sequence[float] | Numbers, deviation: Deviation, epsilon: float) -> Numbers:
    """`norm(x)` over the values of one group. A group of one has no baseline: it gets 0 and a warning.

    All-equal values give exactly 0, whatever epsilon is.
    """
    if len(values) == 1:
        warnings.warn(NO_BASELINE, stacklevel=2)
        return np.zeros(1)
    return standardised(np.asarray(values, dtype=np.float64), deviation, epsilon)


def against_others(values: Numbers) -> Numbers:
    """`others(x)`: each of at least two values minus the mean of the others. Sums to 0."""
    if alike(values):
        return np.zeros(len(values))
    total = math.fsum(values.tolist())
    return values - (total - values) / (len(values) - 1)


def scale(values: Numbers, deviation: Deviation, epsilon: float) -> float:
    """The divisor of differences from the mean: deviation plus epsilon; 1 with `none`, and where all are equal."""
    if deviation == "none" or alike(values):
        return 1.0
    differences = values - math.fsum(values.tolist()) / len(values)
    # Python's power, whose last bit is sometimes another than that of a product: stored results rest on it.
    squares = math.fsum(map(pow, differences.tolist(), repeat(2)))
    return math.sqrt(squares / (len(values) - (deviation == "unbiased"))) + epsilon


def standardised(values: Numbers, deviation: Deviation, epsilon: float) -> Numbers:
    """The values minus their mean, over their deviation plus epsilon; exactly 0 where all are equal."""
    if alike(values):
        return np.zeros(len(values))
    return (values - math.fsum(values.tolist()) / len(values)) / scale(values, deviation, epsilon)
