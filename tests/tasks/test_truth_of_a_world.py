"""A hand-made world of two turns in which every advantage is known, played by a policy whose probabilities are known.

Turn 1: `left`, which pays 0.2 and leads on, with probability 1/2, or `stop`, which ends with nothing.
Turn 2: `up`, which wins 1, with probability 1/4, or `down`, which wins nothing.

    V(start) = 1/2 (0.2 + 1/4) = 0.225      V(after left) = 0.2 + 1/4 = 0.45
    A(left) = 0.225    A(stop) = -0.225     A(up) = 0.75    A(down) = -0.25

The return varies by 1/2 0.225^2 + 3/8 0.025^2 + 1/8 0.975^2 = 0.144 from the start (0, 0.2 or 1.2, mean 0.225), and by
1/4 3/4 = 0.1875 after left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pytest

from tasks.credit_study.replays import states
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import make_episodes, roll_out
from turnwise.agent.playing import worlds_seed
from turnwise.agent.replay import Continuation
from turnwise.config.schema import RewardSection
from turnwise.credit import CreditBatch, estimate
from turnwise.credit.batch import weighted_returns, weighted_rewards
from turnwise.credit_study.study import truth_of
from turnwise.credit_study.truth import Decisions, Truth, agreement
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.policy.engines.contract import Reply
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

KNOWN = {"left": 0.225, "stop": -0.225, "up": 0.75, "down": -0.25}
VARIANCES = {"left": 0.144 + 0.1875, "stop": 0.144, "up": 0.1875, "down": 0.1875}
"""Of an advantage's error, times the number of continuations; after the last turn nothing is left to vary."""
POLICY = {"start": (("left", 0.5), ("stop", 0.5)), "fork": (("up", 0.25), ("down", 0.75))}
REWARDS = {
    "onward": RewardSection(level="turn", weight=0.2),
    "won": RewardSection(level="outcome", weight=1.0),
}
TASKS, REPLICAS, REPLAYS, SEED = 25, 4, 60, 11


class Gates(World):
    name: ClassVar[str] = "gates"
    version: ClassVar[str] = "1"
    instruction = "Go left, then up."
    grammar = "left, stop, up, down"
    limits = Limits(turns=2)
    blocks = False
    rewards: ClassVar[Mapping[str, Reward]] = {
        "onward": Reward("1 for going on", "turn", 0.2),
        "won": Reward("1 for winning", "outcome", 1.0),
    }

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"gates/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        return _Gate()


class _Gate(Environment):
    def reset(self) -> Observation:
        return Observation("start")

    def step(self, action: str) -> Step:
        if action == "left":
            return Step(Observation("fork"), {"onward": 1.0})
        return Step(Observation("end"), {"won": 1.0} if action == "up" else {}, True, success=action == "up")

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("", ("left",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("", ("stop",))


class TabularPolicy:
    """Replies as `POLICY` says, by the last observation in the context."""

    def __init__(self, frame: ChatFrame, seed: int) -> None:
        self._frame, self._noise = frame, np.random.default_rng(seed)
        self._waiting: list[tuple[int, str]] = []

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        text = self._frame.tokenizer.decode(list(context))
        self._waiting.append((episode, "fork" if "fork" in text else "start"))

    def step(self) -> list[Reply]:
        waiting, self._waiting = self._waiting, []
        return [self._reply(episode, POLICY[state]) for episode, state in waiting]

    def _reply(self, episode: int, choices: Sequence[tuple[str, float]]) -> Reply:
        action = self._noise.choice([name for name, _ in choices], p=[share for _, share in choices])
        tokens = self._frame.reply(ThinkAnswerFormat().write(ScriptedAction("", (str(action),))))
        return Reply(episode, tokens, (-1.0,) * len(tokens), True)


@pytest.fixture(scope="module")
def rules() -> EpisodeConfig:
    tokenizer = train_tokenizer(["start fork end left stop up down"] * 20, 320, ThinkAnswerFormat.tags)
    return EpisodeConfig(
        Gates(),
        ThinkAnswerFormat(),
        Limits(turns=2),
        RetryPolicy(),
        ChatFrame(tokenizer),
        None,
        100_000,
        reply_tokens=64,
    )


def played(rules: EpisodeConfig, tasks: int) -> list[Trajectory]:
    episodes = make_episodes(rules, Gates().tasks("train", tasks), REPLICAS, worlds_seed(SEED))
    assert isinstance(rules.frame, ChatFrame)
    return roll_out(episodes, TabularPolicy(rules.frame, 1), rules.frame.decode, most_at_once=256).trajectories


@pytest.fixture(scope="module")
def trajectories(rules: EpisodeConfig) -> list[Trajectory]:
    return played(rules, TASKS)


@pytest.fixture(scope="module")
def truth(rules: EpisodeConfig, trajectories: list[Trajectory]) -> Truth:
    found = states(trajectories, SEED)
    episodes = [
        Continuation(rules, point, number, replica) for number, point in enumerate(found) for replica in range(REPLAYS)
    ]
    assert isinstance(rules.frame, ChatFrame)
    replayed = roll_out(episodes, TabularPolicy(rules.frame, 2), rules.frame.decode, most_at_once=256)
    assert not replayed.lost
    returns: list[list[float]] = [[] for _ in found]
    continuations = trajectory_arrays(replayed.trajectories)
    for state, earned in zip(continuations.group, weighted_returns(continuations, REWARDS), strict=True):
        returns[state].append(earned)
    following = iter(returns)
    return truth_of(
        trajectory_arrays(trajectories), [[next(following) for _ in each.turns] for each in trajectories], REWARDS
    )


def measured(trajectories: list[Trajectory], rows: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
    """The numbers of all turns, by the action that was taken."""
    found: dict[str, list[float]] = {}
    for trajectory, of_turns in zip(trajectories, rows, strict=True):
        for turn, value in zip(trajectory.turns, of_turns, strict=True):
            found.setdefault(turn.actions[0], []).append(value)
    return {action: np.array(values) for action, values in found.items()}


def test_the_truth_by_replay_is_the_known_advantage_of_every_reply(
    trajectories: list[Trajectory], truth: Truth
) -> None:
    found = measured(trajectories, truth.advantages)
    assert {action: len(values) > 5 for action, values in found.items()} == dict.fromkeys(KNOWN, True)
    for action, advantages in found.items():
        error = (VARIANCES[action] / REPLAYS) ** 0.5
        assert np.abs(advantages - KNOWN[action]).max() < 4 * error, action
        assert abs(advantages.mean() - KNOWN[action]) < 4 * error / len(advantages) ** 0.5, action


def test_the_truth_says_how_exact_it_is(trajectories: list[Trajectory], truth: Truth) -> None:
    for action, claimed in measured(trajectories, truth.variances).items():
        assert claimed.mean() == pytest.approx(VARIANCES[action] / REPLAYS, rel=0.25), action


def test_an_unbiased_rule_passes_on_the_whole_truth_and_a_group_mean_three_quarters_of_it(rules: EpisodeConfig) -> None:
    many = played(rules, 500)
    arrays = trajectory_arrays(many)
    of_turns, outcome = weighted_rewards(arrays, REWARDS)
    batch = CreditBatch(group=[each.group for each in many], turn_rewards=of_turns, outcome=outcome.tolist())
    decisions = Decisions.of(arrays)
    known = [[KNOWN[turn.actions[0]] for turn in trajectory.turns] for trajectory in many]
    exactly = Truth(known, [[0.0] * len(row) for row in known])

    def slopes(estimator: str, **options: object) -> list[float]:
        found = agreement(estimate(estimator, batch, **options), exactly, batch.group, decisions, seed=0)
        return [slope.value for slope in found.slopes if slope is not None]

    # The return of a first reply varies by about 0.4, true advantages by 0.225: over 2,000 of them the slope has an
    # error of 0.04.
    assert slopes("rloo", rewards="merged") == pytest.approx([1.0, 1.0], abs=0.15)
    assert slopes("grpo", rewards="merged", deviation="none") == pytest.approx([0.75, 0.75], abs=0.12)
