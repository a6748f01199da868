"""AT2PO: a turn of a tree is worth what the branches below it earn.

    R'_i = (R_i - mean) / (deviation + epsilon)      over the branches of a tree
    V_n  = mean of V over the children of node n     `over: children`
    V_n  = mean of R' over the branches through n    `over: branches`
    A    = V_n,                  or V_n - V_parent   `against: tree`, `against: parent`

A node is a turn with all that came before it: branches that share their first turns are in the same nodes. A branch
that ends in a node is a child of it, with V = R'. The parent of a first turn is the root, whose V is that of its
children. Needs groups of trees: `turnwise.agent.branching`.

AT2PO (Zong et al., arXiv 2601.04767); its release (zzfoutofspace/ATPO, 98e60f65) calls the choices `child_mean`,
`leaf_mean`, `node_value` and `diff_parent`. Differs: its default weighs children by the entropy of their replies
(`child_softmax`), and its trees grow where replies are uncertain; here children weigh alike, and branches begin at
turns drawn at random. Its loss, a ratio per turn, is `gspo` with `optimization.sample: turn`.

Bias: with `over: branches` and `against: tree` the gradient of the first step is that of `tree-grpo` with `across: 0`.
A turn that n branches share is trained n times, there with the advantages of all n, here n times with their mean. With
`over: children` a turn near the end counts for more than the branches that went through it. `against: parent` takes
the mean of a state's replies from each, which the reply itself is among; where nothing branches it is 0.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import Deviation, standardised
from turnwise.data.arrays import Ragged


def at2po(
    batch: CreditBatch,
    *,
    rewards: Rewards = "outcome",
    over: Literal["children", "branches"] = "children",
    against: Literal["tree", "parent"] = "tree",
    deviation: Deviation = "population",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. Needs `trees` and `nodes`. Token rewards count, too."""
    assert batch.trees is not None and batch.nodes is not None, "`estimate` asks for what is needed"
    totals, advantages = batch.totals(rewards), np.zeros(len(batch.nodes.values))
    members: dict[tuple[int, int], list[int]] = {}
    for index, tree in enumerate(zip(batch.group, batch.trees, strict=True)):
        members.setdefault(tree, []).append(index)
    for branches in members.values():
        earned = standardised(totals[branches], deviation, epsilon).tolist()
        paths = [(ROOT, *batch.nodes[index]) for index in branches]
        values = node_values(paths, earned, over)
        for index, path in zip(branches, paths, strict=True):
            parents = [0.0 if against == "tree" else values[parent] for parent in path[:-1]]
            own = [values[node] for node in path[1:]]
            advantages[batch.nodes.places([index])] = np.subtract(own, parents)
    return Ragged(advantages, batch.nodes.offsets)


ROOT = -1
"""The node before the first turn; other nodes are 0 and more."""


def node_values(
    paths: list[tuple[int, ...]], earned: list[float], over: Literal["children", "branches"]
) -> dict[int, float]:
    """V of every node of a tree, from the nodes of each branch, the root first, and what each has earned, R'."""
    below: dict[int, list[float]] = {}
    children: dict[int, set[int]] = {}
    for path, value in zip(paths, earned, strict=True):
        ends = path if over == "branches" else path[-1:]
        for node in ends:
            below.setdefault(node, []).append(value)
        for node, child in pairwise(path):
            children.setdefault(node, set()).add(child)
    values: dict[int, float] = {}
    depths = {node: depth for path in paths for depth, node in enumerate(path)}
    for node in sorted(depths, key=lambda node: -depths[node]):
        of_children = [values[child] for child in sorted(children.get(node, ()))] if over == "children" else []
        beneath = [*of_children, *below.get(node, [])]
        values[node] = math.fsum(beneath) / len(beneath)
    return values
