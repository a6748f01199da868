"""AT2PO on a tree of three branches, by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from credit_samples import close
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit import CreditBatch, estimate
from turnwise.data.arrays import Ragged

# A trunk of three turns, 0, 1 and 2, that earns 3; a branch after turn 0 that earns 1, and one after turn 1 that
# earns 2.
NODES = [[0, 1, 2], [0, 3], [0, 1, 4]]
TREE = CreditBatch(
    group=[7] * 3,
    turn_rewards=[[0.0] * len(row) for row in NODES],
    outcome=[3.0, 1.0, 2.0],
    trees=[0] * 3,
    nodes=Ragged.of(NODES),
    surprisals=Ragged.of([[0.7] * len(row) for row in NODES]),
)


def test_a_turn_is_worth_the_mean_of_its_children() -> None:
    # Without their mean: 1, -1, 0. Turn 1: (1 + 0) / 2; turn 0: (0.5 - 1) / 2.
    assert close(estimate("at2po", TREE, deviation="none"), [[-0.25, 0.5, 1.0], [-0.25, -1.0], [-0.25, 0.5, 0.0]])
    # By the population deviation, the root of 2 / 3:
    scaled = estimate("at2po", TREE, epsilon=0.0)
    assert scaled[0][2] == pytest.approx(1.5**0.5)
    assert scaled[0][0] == pytest.approx(-0.25 * 1.5**0.5)


def test_or_the_mean_of_the_branches_that_go_through_it() -> None:
    found = estimate("at2po", TREE, over="branches", deviation="none")
    assert close(found, [[0.0, 0.5, 1.0], [0.0, -1.0], [0.0, 0.5, 0.0]])


def test_against_its_parent_a_turn_that_did_not_branch_has_nothing() -> None:
    found = estimate("at2po", TREE, against="parent", deviation="none")
    assert close(found, [[0.0, 0.75, 0.5], [0.0, -0.75], [0.0, 0.75, -0.5]])
    alone = CreditBatch(
        group=[0, 0],
        turn_rewards=[[0.0] * 2] * 2,
        outcome=[0.0, 1.0],
        trees=[0, 0],
        nodes=Ragged.of([[0, 1], [2, 3]]),
        surprisals=Ragged.of([[0.0] * 2] * 2),
    )
    found = estimate("at2po", alone, against="parent", deviation="none")
    assert close(found, [[-0.5, 0.0], [0.5, 0.0]])


def test_over_branches_a_shared_turn_gets_in_all_what_tree_grpo_gives_it() -> None:
    by_node: list[Counter[int]] = []
    for name, options in (("at2po", {"over": "branches"}), ("tree-grpo", {"across": 0.0})):
        total: Counter[int] = Counter()
        found = estimate(name, TREE, deviation="none", **options)
        for row, of_turns in zip(found, NODES, strict=True):
            for advantage, node in zip(row, of_turns, strict=True):
                total[node] += float(advantage)
        by_node.append(total)
    assert dict(by_node[0]) == pytest.approx(dict(by_node[1]))


def test_a_branch_that_ends_where_another_goes_on_is_a_child_of_that_turn() -> None:
    batch = CreditBatch(
        group=[0, 0],
        turn_rewards=[[0.0] * 2, [0.0]],
        outcome=[1.0, 0.0],
        trees=[0, 0],
        nodes=Ragged.of([[0, 1], [0]]),
        surprisals=Ragged.of([[math.log(2.0), math.log(6.0)], [math.log(2.0)]]),
    )
    assert close(estimate("at2po", batch, deviation="none"), [[0.0, 0.5], [0.0]])
    # The end of a branch weighs as its turn does, 2, beside 6: 0.75 * 0.5 - 0.25 * 0.5.
    found = estimate("at2po", batch, over="uncertain-children", deviation="none")
    assert close(found, [[0.25, 0.5], [0.25]])


def test_children_weigh_by_how_improbable_their_replies_were() -> None:
    of_nodes = {0: 5.0, 1: 0.0, 2: math.log(3.0), 3: math.log(2.0), 4: 0.0}
    batch = replace(TREE, surprisals=Ragged.of([[of_nodes[node] for node in row] for row in NODES]))
    # Without their mean: 1, -1, 0. Turn 1: (3 * 1 + 1 * 0) / 4; turn 0: (1 * 0.75 - 2 * 1) / 3.
    of_first = -1.25 / 3
    found = estimate("at2po", batch, over="uncertain-children", deviation="none")
    assert close(found, [[of_first, 0.75, 1.0], [of_first, -1.0], [of_first, 0.75, 0.0]])
    against = estimate("at2po", batch, over="uncertain-children", against="parent", deviation="none")
    assert close(against, [[0.0, 0.75 - of_first, 0.25], [0.0, -1.0 - of_first], [0.0, 0.75 - of_first, -0.75]])


@given(surprisal=st.floats(0.0, 20.0), branches=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3))
def test_replies_that_were_as_probable_weigh_alike(surprisal: float, branches: list[float]) -> None:
    batch = replace(TREE, outcome=branches, surprisals=Ragged.of([[surprisal] * len(row) for row in NODES]))
    found = [estimate("at2po", batch, over=over) for over in ("children", "uncertain-children")]
    assert found[0].values == pytest.approx(found[1].values, abs=1e-9)
