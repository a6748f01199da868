"""What the agent's tests play: a hill to climb, faults to order, and an engine that remembers what it was asked."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from turnwise import seeding
from turnwise.agent.context import ConversationFrame
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, roll_out
from turnwise.agent.modes import Mode, PlanMode, ReflectMode
from turnwise.config.agent import ContextSection
from turnwise.data.trajectory import Trajectory
from turnwise.policy.engines.contract import Reply
from turnwise.policy.tokenizer import START, ChatFrame
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

LEGAL = "Legal: up, stay, jump, rest, peek."
THOUGHTFUL: dict[str, Mode] = {
    "plan": PlanMode(tokens=20, every=2),
    "reflect": ReflectMode(tokens=20, attempts=3, signs=("invalid", "ineffective")),
}
"""Modes that ask for thoughts."""
CONTEXTS = {
    "full": ContextSection(),
    "window": ContextSection(policy="window", turns=1),
    "summary": ContextSection(policy="summary", every=2, summary_tokens=24),
}
"""Context policies that rewrite history soon."""


class Hill(World):
    """Climb to `top`; every step up is of 1 or 2, drawn from the episode's seed, so that no two episodes are alike.

    `up` climbs, `stay` does nothing, `jump` fails, `rest` ends the day (a limit of the world's own), `peek` says that
    the task is solved and lets the episode go on.
    """

    name: ClassVar[str] = "hill"
    version: ClassVar[str] = "1"
    rewards: ClassVar[Mapping[str, Reward]] = {
        "climbed": Reward("height won", "turn", 1.0),
        "summit": Reward("1 at the top", "outcome", 1.0),
    }

    instruction = "Climb the hill."
    grammar = LEGAL

    def __init__(self, top: int = 8, limits: Limits | None = None) -> None:
        self.top = top
        self.limits = limits or Limits(turns=6, actions_per_turn=2, actions=10)

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"hill/{split}/{number}", split, number, {"top": self.top}) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        return Climb(self.top, task, seed)


class Climb(Environment):
    def __init__(self, top: int, task: Task, seed: int) -> None:
        self._top, self._task, self._height, self._steps = top, task, 0, 0
        self._noise = np.random.default_rng(seed)

    def reset(self) -> Observation:
        return self._observe(f"Task {self._task.id}.")

    def step(self, action: str) -> Step:
        self._steps += 1
        stride = int(self._noise.integers(1, 3))
        if action == "up":
            self._height += stride
            arrived = self._height >= self._top
            rewards = {"climbed": float(stride), **({"summit": 1.0} if arrived else {})}
            return Step(self._observe("Up."), rewards, arrived, success=arrived, metrics={"strides": 1.0})
        if action == "jump":
            return Step(self._observe("You fell."), terminated=True)
        if action == "rest":
            return Step(self._observe("Night falls."), truncated=True, effective=False)
        if action in ("stay", "peek"):
            return Step(self._observe("Still here."), effective=False, success=action == "peek")
        return Step(self._observe(LEGAL), valid=False, effective=False)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("climb", ("up",) * min(remaining.actions_per_turn, remaining.actions))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        moves = generator.choice(["up", "stay", "jump"], size=2, p=[0.6, 0.3, 0.1])
        return ScriptedAction("whatever", tuple(str(move) for move in moves[: remaining.actions_per_turn]))

    def _observe(self, text: str) -> Observation:
        return Observation(f"{text} Height {self._height} after {self._steps}.", state=str(self._height))


@dataclass(frozen=True)
class Call:
    """One call of a method of an environment, before it is made."""

    method: str
    """`make`, `reset`, `step`, `decide` or `close`."""
    task: str
    attempt: int
    """1 for the first environment of this episode, 2 for the second, ..."""
    number: int
    """How many calls of this method this environment had before."""
    episode: int
    """The episode's seed."""


class Disturbed(World):
    """Another world, with `disturb` called before each call: it may raise, wait or answer late, and changes nothing."""

    version: ClassVar[str] = "1"
    rewards: ClassVar[Mapping[str, Reward]] = Hill.rewards

    def __init__(self, inner: World, disturb: Callable[[Call], object]) -> None:
        self.inner, self._disturb = inner, disturb
        self.name = inner.name  # type: ignore[misc]
        self.instruction, self.grammar, self.limits = inner.instruction, inner.grammar, inner.limits
        self.calls: list[Call] = []
        self._attempts: Counter[tuple[str, int]] = Counter()
        self._threads: dict[threading.Thread, None] = {}
        self._lock = threading.Lock()

    def tasks(self, split: Split, count: int) -> list[Task]:
        return self.inner.tasks(split, count)

    def make(self, task: Task, seed: int) -> Environment:
        with self._lock:
            self._attempts[task.id, seed] += 1
            attempt = self._attempts[task.id, seed]
        self.pass_on(Call("make", task.id, attempt, 0, seed))
        return _DisturbedEnvironment(self, self.inner.make(task, seed), task.id, attempt, seed)

    def pass_on(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)
            self._threads[threading.current_thread()] = None
        self._disturb(call)

    def wait_until_closed(self) -> None:
        """Until the thread of every environment has ended: a host does not wait for a world to close."""
        for thread in list(self._threads):
            thread.join()

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.calls)


class _DisturbedEnvironment(Environment):
    def __init__(self, world: Disturbed, inner: Environment, task: str, attempt: int, seed: int) -> None:
        self._world, self._inner, self._task, self._attempt, self._seed = world, inner, task, attempt, seed
        self._numbers: Counter[str] = Counter()

    def reset(self) -> Observation:
        self._disturb("reset")
        return self._inner.reset()

    def step(self, action: str) -> Step:
        self._disturb("step")
        return self._inner.step(action)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return self._inner.oracle(remaining)

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return self._inner.random(generator, remaining)

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        self._disturb("decide")
        return self._inner.decide(baseline, generator, remaining)

    def close(self) -> None:
        self._disturb("close")
        self._inner.close()

    def _disturb(self, method: str) -> None:
        number = self._numbers[method]
        self._numbers[method] += 1
        self._world.pass_on(Call(method, self._task, self._attempt, number, self._seed))


@dataclass(frozen=True)
class Planned:
    """A reply that an engine will give."""

    tokens: tuple[int, ...]
    steps: int = 1
    """Engine steps after its submission at which it finishes."""
    complete: bool = True


@dataclass
class _Running:
    episode: int
    planned: Planned
    steps_left: int


class RecordingEngine:
    """Keeps the part of the engine's contract that the loop needs, and remembers every context and every reply.

    `plan(number)` gives the reply to the submission with that number over all episodes: as with a real engine, what is
    sampled depends on the order of the submissions.
    """

    def __init__(self, plan: Callable[[int], Planned]) -> None:
        self._plan = plan
        self._running: list[_Running] = []
        self.submitted: list[tuple[int, tuple[int, ...]]] = []
        self.replies: list[Reply] = []

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        planned = self._plan(len(self.submitted))
        self.submitted.append((episode, tuple(context)))
        self._running.append(_Running(episode, planned, planned.steps))

    def step(self) -> list[Reply]:
        assert self._running, "a step needs something in flight"
        for running in self._running:
            running.steps_left -= 1
        done = sorted((running for running in self._running if not running.steps_left), key=lambda each: each.episode)
        self._running = [running for running in self._running if running.steps_left]
        replies = [self._reply(running) for running in done]
        self.replies += replies
        return replies

    def _reply(self, running: _Running) -> Reply:
        # Log-probabilities that name their token, its place and its episode: a shift cannot go unseen.
        numbers = tuple(
            -(token + place / 1000 + running.episode / 1e6) for place, token in enumerate(running.planned.tokens)
        )
        return Reply(running.episode, running.planned.tokens, numbers, running.planned.complete)


def form(*actions: str, thought: str = "so") -> str:
    """A reply in the form `think-answer`."""
    return ThinkAnswerFormat().write(ScriptedAction(thought, actions))


def improvised(frame: ChatFrame, seed: int) -> Callable[[int], Planned]:
    """A plan of good, illegal, unreadable, cut-off and senseless replies that finish after 1 to 5 engine steps."""
    texts = [form("up"), form("up", "up"), form("stay", "up"), form("fly"), form("up", "", "up"), "no form", form("é√")]
    choice = random.Random(seed)
    vocabulary = [token for token in range(len(frame.tokenizer)) if token not in frame.end_tokens]
    control = frame.tokenizer.convert_tokens_to_ids(START)

    def plan(number: int) -> Planned:
        tokens = frame.reply(choice.choice(texts))
        steps = choice.randint(1, 5)
        kind = choice.random()
        if kind < 0.15:
            return Planned(tokens[: choice.randint(1, len(tokens) - 1)], steps, complete=False)
        if kind < 0.3:
            # Tokens as no tokenizer would make them of their own text, with control tokens and broken UTF-8.
            return Planned(
                (*choice.choices([*vocabulary, *[control] * 20], k=choice.randint(0, 12)), *frame.end_tokens), steps
            )
        return Planned(tokens, steps)

    return plan


def rules_for(
    world: World, frame: ConversationFrame | None = None, patience: RetryPolicy | None = None, **changes: Any
) -> EpisodeConfig:
    return EpisodeConfig(
        **{
            "world": world,
            "format": ThinkAnswerFormat(),
            "limits": world.limits,
            "patience": patience or RetryPolicy(seconds=60, retries=2),
            "frame": frame,
            "token_budget": 100_000,
            "reply_tokens": 64,
            **changes,
        }
    )


def play_texts(world: World, *replies: str, **changes: Any) -> Trajectory:
    """The trajectory of one episode with these replies, all of which it must ask for."""
    (episode,) = make_episodes(rules_for(world, **changes), world.tasks("train", 1), 1, seed=0)
    episode.open()
    for reply in replies:
        assert not episode.over, "the episode ended before its last reply"
        answer(episode, reply)
    result = episode.result()
    assert isinstance(result, Trajectory)
    return result


def answer(episode: Episode, reply: str, complete: bool = True) -> None:
    episode.receive(reply, (), (), complete)
    episode.settle()


def answer_in_tokens(episode: Episode, frame: ChatFrame, text: str) -> None:
    tokens = frame.reply(text)
    episode.receive(text, tokens, (-1.0,) * len(tokens), True)
    episode.settle()


def play_with_engine(
    world: World,
    frame: ChatFrame,
    plan: Callable[[int], Planned],
    *,
    tasks: int = 3,
    replicas: int = 2,
    world_delay: int = 0,
    **changes: Any,
) -> tuple[RolloutResult, RecordingEngine]:
    """What came of `tasks` x `replicas` episodes, and the engine that remembers how."""
    engine = RecordingEngine(plan)
    episodes = make_episodes(rules_for(world, frame, **changes), world.tasks("train", tasks), replicas, seed=5)
    return roll_out(episodes, engine, frame.decode, world_delay=world_delay), engine


def faulty(call: Call) -> None:
    """The first two environments of every episode raise somewhere, also in the middle of a turn."""
    place = seeding.derive(call.episode, "fault", call.attempt) % 4
    if call.attempt <= 2 and (call.method, call.number) == (("reset", "step", "step", "step")[place], place // 2):
        raise ConnectionError("lost")


def check_segments(
    trajectory: Trajectory, submitted: Sequence[tuple[int, tuple[int, ...]]], replies: Sequence[Reply], episode: int
) -> None:
    """Each reply stands in its segment after exactly the context that was submitted for it."""
    contexts = [context for of_episode, context in submitted if of_episode == episode]
    sampled = [reply for reply in replies if reply.episode == episode]
    assert len(contexts) == len(sampled) == len(trajectory.turns)
    for turns, sequence in zip(trajectory.segment_turns, trajectory.segments(every_reply=True), strict=True):
        mask = [0] * len(sequence.tokens)
        for turn in turns:
            context, reply = contexts[turn], sampled[turn]
            end = len(context) + len(reply.tokens)
            assert sequence.tokens[: len(context)] == context
            assert sequence.tokens[len(context) : end] == reply.tokens
            assert sequence.log_probabilities[len(context) : end] == reply.log_probabilities
            mask[len(context) : end] = [1] * len(reply.tokens)
        assert sequence.mask == tuple(mask)
