"""Branching groups: a fresh group of continuations from each turn's state of one trajectory, the trunk.

    group (prompt, 1)       G independent episodes, of which the first is the trunk
    group (prompt, t > 1)   G continuations to the end, from the state before turn t of the trunk

The members of group (prompt, t) differ from turn t on and in nothing before it. So the group's mean is a baseline of
exactly that state, and only the reply of turn t is trained: no later reply was made in a state that the group shares,
and each earlier one is the trunk's, the same for all. Rewards of turns before t are the same for all members: they
cancel in any difference from the group's mean, whatever it is divided by, so that estimators which compare within
groups need not know of branching.

Paper: MT-GRPO (arXiv 2505.11821, section 4.2) asks for a fresh group from each turn's state. Differs from it: there
every trajectory branches at every turn, G^(K-1) trajectories for K turns; here only the trunk does, which is at most
1 + (G - 1) + (K - 1) G, as VinePPO (arXiv 2410.01679) does to value states. The trunk visits states as the policy does,
so that the sum over the turns estimates the same gradient.

It costs many sampled tokens for each that is trained: see `cost`. Turn 1's groups are by themselves the independent
rollout that the same settings would have made, so that what is reported of the policy is taken from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwise.credit import ESTIMATORS
from turnwise.data.trajectory import Trajectory, Turn
from turnwise.errors import ConfigurationError


def group_of(prompt: int, turn: int, prompts: int) -> int:
    """The number of the group that branches at a turn (from 0) of a prompt; at turn 0 it is the prompt's own."""
    return turn * prompts + prompt


def turn_of(group: int, prompts: int) -> int:
    """The turn, from 0, at which a group branches."""
    return group // prompts


def trained_at(trajectory: Trajectory, turn: int) -> Trajectory:
    """The trajectory with no reply trained on but that of one turn, unless it is frozen; the others are context."""
    turns = tuple(replace(each, trained=each.trained and place == turn) for place, each in enumerate(trajectory.turns))
    return replace(trajectory, turns=turns)


def cost(trajectories: Sequence[Trajectory], prompts: int) -> dict[str, float]:
    """What branching cost, in reply tokens: all that were sampled, those of independent groups of the same size, and
    those that are trained; `cost` is the first over the second. Replayed turns cost nothing.
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


def require_branching(estimator: str, selection: str) -> None:
    """Raise ConfigurationError for credit or a selection that makes no sense of branching groups."""
    suited = [name for name, found in ESTIMATORS.items() if found.grouped and "anchors" not in found.needs]
    if estimator not in suited:
        reason = (
            "its anchor states are what a branching group shares already, and replayed turns would count as visits"
            if "anchors" in ESTIMATORS[estimator].needs
            else "it compares nothing within a group, so that the groups would be sampled for nothing"
        )
        raise ConfigurationError(
            f"rollout.scheme branching goes with the estimators {', '.join(suited)}; found credit.estimator: "
            f"{estimator}: {reason}. Choose one of those, or the scheme independent"
        )
    if selection == "mixed":
        raise ConfigurationError(
            "rollout.scheme branching cannot go with selection.rule mixed, which samples prompts again until there are "
            "rollout.prompts groups: a prompt has as many groups as its trunk has turns. Choose another rule, or the "
            "scheme independent"
        )


def _tokens(turns: Sequence[Turn]) -> int:
    return sum(len(turn.reply_tokens) for turn in turns)
