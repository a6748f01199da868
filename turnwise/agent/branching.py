"""Branching rollouts: groups whose episodes share their first turns. Two schemes.

`branching`: a group of G continuations from the state before each turn of one trajectory, the trunk.

    group (prompt, 1)       G independent episodes, of which the first is the trunk
    group (prompt, t > 1)   G continuations to the end, from the state before turn t of the trunk

The members of group (prompt, t) share everything before turn t and differ from turn t on. The group's mean is
therefore a baseline for exactly that state, and only the reply of turn t is trained: later replies were sampled in
states that the group does not share, and earlier replies are the trunk's, identical in all members. Rewards of turns
before t are identical too: they cancel in any difference from the group's mean, whatever it is divided by, so
estimators that compare within groups need no change for branching.

Paper: MT-GRPO (arXiv 2505.11821, section 4.2) asks for a fresh group from each turn's state. What differs: in the paper
every trajectory branches at every turn, G^(K-1) trajectories for K turns; here only the trunk does, at most
1 + (G - 1) + (K - 1) G trajectories, as VinePPO (arXiv 2410.01679) does to value states. The trunk is sampled from the
policy and so visits states as the policy does: the sum over turns estimates the same gradient.

Branching samples many tokens for each one that is trained: see `cost`. The groups of turn 1 are exactly the rollout
that the scheme `independent` would have made with the same settings, so metrics of the policy are taken from them.

`tree`: M trees of B branches are the group of M B episodes.

    branch 0 of a tree      an independent episode, the trunk
    branches 1 ... B - 1    continuations to the end, each from the state before a turn of the trunk drawn at random

Paper: Tree-GRPO (arXiv 2509.21240), whose release draws N = B - 1 nodes in L = 1 round, uniformly and with replacement,
the root among them. All turns of a branch are trained, those that it shares with the trunk included, as there. A group
costs fewer sampled tokens than as many independent episodes, so that a budget of tokens buys more of them: see
`cost_of_trees`. Differs: no branch is left out after sampling. The world's noise on a branch is the trunk's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from turnwise.data.trajectory import LostEpisode, Trajectory, Turn

if TYPE_CHECKING:
    from turnwise.agent.loop import RolloutResult


def group_of(prompt: int, turn: int, prompts: int) -> int:
    """The index of the group that branches at `turn` (from 0) of a prompt; at turn 0 it is the prompt's own index."""
    return turn * prompts + prompt


def turn_of(group: int, prompts: int) -> int:
    """The turn, from 0, at which a group branches."""
    return group // prompts


Played = TypeVar("Played", Trajectory, LostEpisode)


def from_first_turn(episodes: Sequence[Played], prompts: int | None) -> Sequence[Played]:
    """The episodes that were played from their first turn: of a branching rollout of `prompts` tasks, not all are.

    None: no branching rollout.
    """
    return episodes if prompts is None else [each for each in episodes if turn_of(each.group, prompts) == 0]


def trained_at(trajectory: Trajectory, turn: int) -> Trajectory:
    """A copy of the trajectory in which only the reply of `turn` is trained (not even that if it is frozen).

    The other turns stay as context.
    """
    turns = tuple(replace(each, trained=each.trained and place == turn) for place, each in enumerate(trajectory.turns))
    return replace(trajectory, turns=turns)


def cost(trajectories: Sequence[Trajectory], prompts: int) -> dict[str, float]:
    """Metrics of what branching cost, in reply tokens.

    Counted are all sampled tokens, those that independent groups of the same size would have sampled, and those that
    are trained. `branching/cost` is the first over the second. Replayed turns are not sampled and cost nothing.
    """
    sampled = independent = trained = 0
    for trajectory in trajectories:
        turn = turn_of(trajectory.group, prompts)
        fresh = _tokens(trajectory.turns[turn:])
        sampled += fresh
        independent += fresh if turn == 0 else 0
        trained += _tokens([each for each in trajectory.turns if each.trained])
    return {
        "branching/groups": len({trajectory.group for trajectory in trajectories}),
        "branching/trajectories": len(trajectories),
        "branching/sampled_tokens": sampled,
        "branching/independent_tokens": independent,
        "branching/trained_tokens": trained,
        **({"branching/cost": sampled / independent} if independent else {}),
    }


def cost_of_trees(rollout: RolloutResult) -> dict[str, float]:
    """Metrics of what trees cost, in reply tokens: those sampled, those of all branches, and the first over the second.

    Independent episodes of the same number would have sampled about as many as all branches have.
    """
    branch_tokens = sum(_tokens(trajectory.turns) for trajectory in rollout.trajectories)
    sampled = rollout.seconds.get("sampled_tokens", 0.0)
    return {
        "tree/sampled_tokens": sampled,
        "tree/tokens": branch_tokens,
        **({"tree/cost": sampled / branch_tokens} if branch_tokens else {}),
    }


def _tokens(turns: Sequence[Turn]) -> int:
    return sum(len(turn.reply_tokens) for turn in turns)
