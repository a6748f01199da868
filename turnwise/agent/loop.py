"""The rollout loop: play many episodes at once, deterministically, over the steps of a sampling engine.

As soon as a reply is finished its world steps and its next turn is queued, so no trajectory waits for the slowest one.
What enters the engine, when and in which order, depends on engine steps alone: the loop waits for a slow world, so
wall-clock time never decides what is sampled. Worlds whose replies finished at the same engine step run concurrently;
`world_delay` lets them run for that many further engine steps before the loop waits for them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from turnwise import seeding
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.scripted import act, think
from turnwise.data.trajectory import LostEpisode, Trajectory, TurnKind
from turnwise.errors import WorldLost
from turnwise.world import ScriptedAction, Task

if TYPE_CHECKING:
    from turnwise.policy.engines.contract import Reply


class ReplySource(Protocol):
    """The part of an engine that the loop needs: see `turnwise.policy.engines.contract.Engine`."""

    @property
    def in_flight(self) -> int:
        """Number of replies that were requested and have not finished."""

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply of at most `reply_tokens` tokens to a context."""

    def step(self) -> Sequence[Reply]:
        """Run one engine step and return the replies that it finished, in order of episode."""


@dataclass
class RolloutResult:
    """The result of a rollout: trajectories in order of (group, replica), lost episodes, and timings."""

    trajectories: list[Trajectory]
    lost: list[LostEpisode]
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds, by name: `world_seconds`, and with an engine `sampling_seconds`."""


def make_episodes(rules: EpisodeConfig, tasks: Sequence[Task], replicas: int, seed: int) -> list[Episode]:
    """`replicas` episodes of each task, in order; the noise of each is derived from seed, group and replica."""
    return [
        Episode(rules, task, group, replica, episode_seed(seed, group, replica))
        for group, task in enumerate(tasks)
        for replica in range(replicas)
    ]


def episode_seed(seed: int, group: int, replica: int) -> int:
    """The noise seed of one episode of `make_episodes`; the episode can be replayed with it."""
    return seeding.derive(seed, "episode", group, replica)


def roll_out(
    episodes: Sequence[Episode],
    engine: ReplySource,
    decode: Callable[[tuple[int, ...]], str],
    *,
    world_delay: int = 0,
    most_at_once: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> RolloutResult:
    """Play all episodes with the engine's replies and return the trajectories.

    `decode` turns the tokens of a reply into text. `world_delay` is a number of engine steps, see the module. At most
    `most_at_once` worlds are open, and further episodes start in order as others end; None: all at once. `on_progress`
    is called with the number of finished episodes and of all episodes.
    """
    sampling, worlds = Stopwatch(), Stopwatch()
    with _closed_at_the_end(episodes):
        waiting = deque(range(len(episodes)))
        playing = 0
        with_the_world: deque[tuple[int, int]] = deque()  # (engine step at which it is waited for, episode)
        step = 0
        while waiting or playing:
            while waiting and (most_at_once is None or playing < most_at_once):
                index = waiting.popleft()
                with worlds:
                    episodes[index].open()
                if not episodes[index].over:
                    playing += 1
                    engine.submit(index, episodes[index].context, episodes[index].ask.reply_tokens)
            if engine.in_flight:
                with sampling:
                    replies = engine.step()
                step += 1
                for reply in replies:
                    text = decode(reply.tokens)
                    episodes[reply.episode].receive(text, reply.tokens, reply.log_probabilities, reply.complete)
                    with_the_world.append((step + world_delay, reply.episode))
            elif with_the_world:
                step = max(step, with_the_world[0][0])  # the engine is idle: wait for the episodes that are due first
            due = []
            while with_the_world and with_the_world[0][0] <= step:
                due.append(with_the_world.popleft()[1])
            with worlds:
                for index in due:
                    episodes[index].settle()
            for index in due:
                if episodes[index].over:
                    playing -= 1
                else:
                    engine.submit(index, episodes[index].context, episodes[index].ask.reply_tokens)
            if on_progress is not None:
                on_progress(len(episodes) - len(waiting) - playing, len(episodes))
    return _played(episodes, {"sampling_seconds": sampling.seconds, "world_seconds": worlds.seconds})


def play_scripted(
    episodes: Sequence[Episode],
    write: Callable[[ScriptedAction], str],
    choose: Callable[[int, int], str],
    seed: int,
    *,
    looks_ahead: bool = False,
) -> RolloutResult:
    """Play all episodes with scripted policies, one episode after the other, as text without tokens.

    `choose(index, turn)` names the policy for an acting turn of episode `index`, counting acting turns only; `write`
    writes its scripted action in the reply format. Plans, lessons and summaries are written by
    `turnwise.agent.scripted`. With `looks_ahead`, plans and lessons say what the oracle really does next, which takes
    one more environment for each.
    """
    worlds = Stopwatch()
    with worlds, _closed_at_the_end(episodes):
        for index, episode in enumerate(episodes):
            episode.open()
            turn = 0
            while not episode.over:
                if episode.ask.kind is not TurnKind.ACT:
                    think(episode, looks_ahead)
                    continue
                act(episode, choose(index, turn), write, seeding.generator(seed, "player", index, turn))
                turn += 1
    return _played(episodes, {"world_seconds": worlds.seconds})


@contextmanager
def _closed_at_the_end(episodes: Sequence[Episode]) -> Iterator[None]:
    """Close all episodes when the block ends, also when it raises."""
    try:
        yield
    finally:
        for episode in episodes:
            episode.close()


class Stopwatch:
    """A stopwatch that adds up the seconds spent inside its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def _played(episodes: Sequence[Episode], seconds: dict[str, float]) -> RolloutResult:
    results = [episode.result() for episode in episodes]
    trajectories = [result for result in results if isinstance(result, Trajectory)]
    return RolloutResult(trajectories, [result for result in results if isinstance(result, LostEpisode)], seconds)


def require_few_losses(rollout: RolloutResult, world: str, maximum_share: float) -> None:
    """Raise WorldLost if more than the share `maximum_share` (0 to 1) of the episodes was lost.

    What is left would then be data of another task set.
    """
    total = len(rollout.trajectories) + len(rollout.lost)
    if len(rollout.lost) > maximum_share * total:
        raise WorldLost(
            f"at most {maximum_share:.0%} of the episodes may be lost (rollout.maximum_lost_share); the world "
            f"{world!r} lost {len(rollout.lost)} of {total}. The first: {rollout.lost[0].reason}",
            "TW-too-many-lost",
        )
