"""Branching rollouts: first the trunks, then all other episodes in one pass; see `turnwise.agent.branching`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from typing import Literal, Protocol

from turnwise import seeding
from turnwise.agent.branching import cost, cost_of_trees, from_first_turn, group_of, trained_at, turn_of
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.loop import RolloutResult, episode_seed, make_episodes
from turnwise.agent.playing import worlds_seed
from turnwise.agent.replay import Continuation, Point, points
from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE, MakeEpisodes, independent
from turnwise.data.metrics import episode_means
from turnwise.data.trajectory import Trajectory, Turn
from turnwise.world import Task

Scheme = Literal["independent", "branching", "tree"]


class PlayEpisodes(Protocol):
    """`turnwise.agent.sampling.play_episodes` with the policy and the temperature already bound."""

    def __call__(self, make: MakeEpisodes, *, seed: int, what: str, most_at_once: int | None = None) -> RolloutResult:
        """Play the episodes that `make` makes."""


def play_groups(
    play: PlayEpisodes, scheme: Scheme, tasks: Sequence[Task], group_size: int, branches: int | None, seed: int
) -> RolloutResult:
    """Play a group of each task by the scheme; `branches` is the number of a tree's, None for another scheme."""
    if scheme == "branching":
        return play_branching(play, tasks, group_size, seed)
    if branches is not None:
        return play_trees(play, tasks, group_size // branches, branches, seed)
    return play(independent(tasks, group_size, seed), seed=seed, what="sampling")


def rollout_metrics(rollout: RolloutResult, scheme: Scheme, prompts: int, recorded: frozenset[str]) -> dict[str, float]:
    """Means over the episodes that were played from their first turn; with branching, also what the branches cost."""
    branching = prompts if scheme == "branching" else None
    whole, lost_episodes = from_first_turn(rollout.trajectories, branching), from_first_turn(rollout.lost, branching)
    means = episode_means(whole, len(lost_episodes), recorded)
    if scheme == "branching":
        return {**means, **cost(rollout.trajectories, prompts)}
    return {**means, **(cost_of_trees(rollout) if scheme == "tree" else {})}


def play_branching(play: PlayEpisodes, tasks: Sequence[Task], group_size: int, seed: int) -> RolloutResult:
    """Play a trunk of each task and branch a group of `group_size` from the state before each of its turns.

    Trajectories are sorted by (group, replica). The groups of turn 1 use the worlds that
    `turnwise.agent.sampling.independent` would give them with the same seed.
    """
    world_seed = worlds_seed(seed)
    trunks = play(independent(tasks, 1, seed), seed=seed, what="sampling trunks")

    def branches(rules: EpisodeConfig) -> list[Episode]:
        others = [episode for episode in make_episodes(rules, tasks, group_size, world_seed) if episode.replica > 0]
        return [*others, *_continuations(rules, trunks.trajectories, len(tasks), group_size, world_seed)]

    rollout = _with_branches(play, trunks, branches, seed)
    rollout.trajectories = [trained_at(each, turn_of(each.group, len(tasks))) for each in rollout.trajectories]
    return rollout


def play_trees(play: PlayEpisodes, tasks: Sequence[Task], trees: int, branches: int, seed: int) -> RolloutResult:
    """Grow `trees` trees of `branches` branches for each task: a group of trees x branches episodes.

    Replica number t x branches + b is branch b of tree t; branch 0 is the trunk. Trajectories are sorted by (group,
    replica).
    """
    world_seed = worlds_seed(seed)
    trunks = play(independent(tasks, trees, seed), seed=seed, what="sampling trunks")
    trunk_by_tree = {(trunk.group, trunk.replica * branches): trunk for trunk in trunks.trajectories}

    def continuations(rules: EpisodeConfig) -> list[Episode]:
        return [
            Continuation(rules, point, group, first + 1 + number)
            for (group, first), trunk in sorted(trunk_by_tree.items())
            for number, point in enumerate(_draw_points(trunk, branches - 1, world_seed, seed))
        ]

    trunks.trajectories = [replace(trunk, replica=replica) for (_, replica), trunk in trunk_by_tree.items()]
    trunks.lost = [replace(episode, replica=episode.replica * branches) for episode in trunks.lost]
    rollout = _with_branches(play, trunks, continuations, seed)
    rollout.trajectories = [
        _trained_as(trunk_by_tree[each.group, each.replica // branches * branches], each)
        for each in rollout.trajectories
    ]
    return rollout


def _with_branches(play: PlayEpisodes, trunks: RolloutResult, make: MakeEpisodes, seed: int) -> RolloutResult:
    """The trunks and the branches that `make` makes, which are played now, by group and replica."""
    # One call for all branches: what the engine draws depends on which episodes run together.
    branch_rollout = play(
        make, seed=seeding.derive(seed, "branches"), what="branching", most_at_once=MOST_EPISODES_AT_ONCE
    )
    place = attrgetter("group", "replica")
    return RolloutResult(
        sorted([*trunks.trajectories, *branch_rollout.trajectories], key=place),
        sorted([*trunks.lost, *branch_rollout.lost], key=place),
        {name: trunks.seconds[name] + branch_rollout.seconds[name] for name in trunks.seconds},
    )


def _draw_points(trunk: Trajectory, count: int, world_seed: int, seed: int) -> list[Point]:
    """`count` points of a trunk, drawn uniformly and with replacement, in the order of their turns.

    None of a trunk without a turn: nothing can go on from one.
    """
    if not trunk.turns:
        return []
    generator = seeding.generator(seed, "branching points", trunk.group, trunk.replica)
    turns = sorted(generator.integers(len(trunk.turns), size=count).tolist())
    trunk_points = points(trunk, episode_seed(world_seed, trunk.group, trunk.replica))
    return [trunk_points[turn] for turn in turns]


def _trained_as(trunk: Trajectory, branch: Trajectory) -> Trajectory:
    """The branch, whose replayed turns are trained where the trunk's are."""
    pairs = zip(branch.turns, trunk.turns, strict=False)
    shared = [replace(turn, trained=trunk_turn.trained) for turn, trunk_turn in takewhile(_is_replayed, pairs)]
    return replace(branch, turns=(*shared, *branch.turns[len(shared) :]))


def _is_replayed(pair: tuple[Turn, Turn]) -> bool:
    turn, trunk_turn = pair
    # A reward of the user's own may pay a turn by what came later, which differs between branches.
    return replace(turn, trained=trunk_turn.trained, rewards=trunk_turn.rewards) == trunk_turn


def _continuations(
    rules: EpisodeConfig, trunks: Sequence[Trajectory], prompts: int, group_size: int, world_seed: int
) -> list[Continuation]:
    """A group of continuations from the state before each turn of each trunk but the first, turn by turn.

    Turns that are not trained get no group: there would be nothing to learn.
    """
    later = [
        (group_of(trunk.group, point.turn, prompts), point)
        for trunk in trunks
        for point in points(trunk, episode_seed(world_seed, trunk.group, trunk.replica), first=1)
        if point.awaited.trained
    ]
    return [
        Continuation(rules, point, group, replica)
        for group, point in sorted(later, key=lambda each: each[0])
        for replica in range(group_size)
    ]
