"""AT2PO: a turn of a tree is worth what the branches below it earn.

    R'_i = (R_i - mean) / (deviation + epsilon)      over the branches of a tree
    V_n  = mean of V over the children of node n     `over: children`
    V_n  = sum of V_m exp(H_m) / sum of exp(H_m)     `over: uncertain-children`, over the children m
    V_n  = mean of R' over the branches through n    `over: branches`
    A    = V_n,                  or V_n - V_parent   `against: tree`, `against: parent`

H_m: the mean of -log mu over the tokens of the reply of turn m, which it was sampled with; that is an estimate of its
entropy per token.

A node is a turn with all that came before it: branches that share their first turns are in the same nodes. A branch
that ends in a node is a child of it, with V = R' and the node's own H. The parent of a first turn is the root, whose V
is that of its children. Needs groups of trees: `turnwise.agent.branching`.

AT2PO (Zong et al., arXiv 2601.04767); its release (zzfoutofspace/ATPO, 98e60f65) calls the choices `child_mean`,
`child_softmax`, its default, `leaf_mean`, `node_value` and `diff_parent`. Differs: its trees grow where replies are
uncertain; here branches begin at turns drawn at random, and by default children weigh alike. Its loss, a ratio per
turn, is `gspo` with `optimization.sample: turn`.

Bias: with `over: branches` and `against: tree` the gradient of the first step is that of `tree-grpo` with `across: 0`.
A turn that n branches share is trained n times, there with the advantages of all n, here n times with their mean. With
`over: children` a turn near the end counts for more than the branches that went through it. `against: parent` takes
the mean of a state's replies from each, which the reply itself is among; where nothing branches it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from operator import mul
from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import Deviation, standardised
from turnwise.data.arrays import Ragged

Over = Literal["children", "uncertain-children", "branches"]


def at2po(
    batch: CreditBatch,
    *,
    rewards: Rewards = "outcome",
    over: Over = "children",
    against: Literal["tree", "parent"] = "tree",
    deviation: Deviation = "population",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. Needs `trees`, `nodes` and `surprisals`. Token rewards count, too."""
    assert batch.trees is not None and batch.nodes is not None and batch.surprisals is not None, "`estimate` asks"
    totals, advantages = batch.totals(rewards), np.zeros(len(batch.nodes.values))
    members: dict[tuple[int, int], list[int]] = {}
    for index, tree in enumerate(zip(batch.group, batch.trees, strict=True)):
        members.setdefault(tree, []).append(index)
    for branches in members.values():
        branch_returns = standardised(totals[branches], deviation, epsilon).tolist()
        paths = [(ROOT, *batch.nodes[index]) for index in branches]
        places = batch.nodes.places(branches)
        surprisals = dict(
            zip(batch.nodes.values[places].tolist(), batch.surprisals.values[places].tolist(), strict=True)
        )
        values = node_values(paths, branch_returns, over, surprisals)
        for index, path in zip(branches, paths, strict=True):
            parents = [0.0 if against == "tree" else values[parent] for parent in path[:-1]]
            own = [values[node] for node in path[1:]]
            advantages[batch.nodes.places([index])] = np.subtract(own, parents)
    return Ragged(advantages, batch.nodes.offsets)


ROOT = -1
"""The node before the first turn; other nodes are 0 and more."""


def node_values(
    paths: list[tuple[int, ...]], branch_returns: list[float], over: Over, surprisals: Mapping[int, float]
) -> dict[int, float]:
    """V of every node of a tree, from the nodes of each branch, the root first, and what each has earned, R'.

    `surprisals`: H of every node but the root.
    """
    below: dict[int, list[float]] = {}
    children: dict[int, set[int]] = {}
    for path, value in zip(paths, branch_returns, strict=True):
        ends = path if over == "branches" else path[-1:]
        for node in ends:
            below.setdefault(node, []).append(value)
        for node, child in pairwise(path):
            children.setdefault(node, set()).add(child)
    values: dict[int, float] = {}
    depths = {node: depth for path in paths for depth, node in enumerate(path)}
    for node in sorted(depths, key=lambda node: -depths[node]):
        own = below.get(node, [])
        nodes_below = sorted(children.get(node, ())) if over != "branches" else []
        beneath = [*(values[child] for child in nodes_below), *own]
        weights = [1.0] * len(beneath)
        if over == "uncertain-children":
            weights = [math.exp(surprisals[each]) for each in (*nodes_below, *[node] * len(own))]
        values[node] = math.fsum(map(mul, weights, beneath)) / math.fsum(weights)
    return values
