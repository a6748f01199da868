"""The suite that every installed world passes: it keeps the contract, and says of itself what is true.

The test files next to this one run all of it, each on worlds of its own, so that test processes share them.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conformance_cases import DOCUMENTED, OFFERED, Case
from scipy import stats

from turnwise import seeding
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.checking import CheckReport, check_world
from turnwise.checking.baselines import RECORD_FILE, Score, read_lines, score
from turnwise.checking.examination import fuzz_replies
from turnwise.checking.playing import first_tasks, open_episode, play
from turnwise.statistics import Interval
from turnwise.world import Environment, Limits, ScriptedAction, Task

RECORD = Path(__file__).parents[2] / "docs" / RECORD_FILE
FORM = ThinkAnswerFormat()
FRESH = 1
"""The seed of episodes that nobody has recorded: the record's is 0."""
STRANGE_REPLIES = 1000
THREE_STANDARD_ERRORS = 0.0027
"""How seldom a normal variable lies further from its mean."""


def test_the_world_keeps_its_contract(case: Case) -> None:
    promised = case.world.oracle_success or None
    report: CheckReport = check_world(
        case.world,
        count=case.effort.tasks,
        oracle_success=promised,
        parameters=case.parameters,
        sample=case.effort.sample,
    )
    assert report.passed, "\n".join(report.lines())


# What an agent's policy may write


class Listener:
    """The frame of an agent without a tokenizer: keeps the last text that a policy would be shown."""

    end_tokens: tuple[int, ...] = ()
    text = ""

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        return self.continuation(observation, ())

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        self.text = observation
        return ()

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        raise AssertionError("there are no thoughts to drop")

    def decode(self, tokens: tuple[int, ...]) -> str:
        raise AssertionError("there are no tokens")


def refused_replies(case: Case, task: Task, offered: str) -> list[str]:
    """Replies that no action can be read from, or one that the world does not know here.

    Some of the noise is taken for an action: a search for anything, say. So there is a third more of it than is needed.
    """
    strange = fuzz_replies(case.world, FRESH, "through the agent", offered, STRANGE_REPLIES * 4 // 3)
    written = [FORM.write(ScriptedAction("", (text,))) if number % 2 else text for number, text in enumerate(strange)]
    refused = []
    with ExitStack() as episode:
        environment = opened(case, task, episode)
        for reply in written:
            actions = FORM.read(reply, 1).actions
            if not actions or not environment.step(actions[0]).valid:
                refused.append(reply)
            else:
                episode.close()
                environment = opened(case, task, episode)
    return refused[:STRANGE_REPLIES]


def opened(case: Case, task: Task, episode: ExitStack) -> Environment:
    """An environment at its beginning, which the stack closes."""
    environment = episode.enter_context(closing(open_episode(case.world, task, FRESH)))
    environment.reset()
    return environment


def test_strange_replies_change_nothing_but_the_turn_count(case: Case) -> None:
    (task,) = case.world.tasks("test", 1)
    guided = play(case.world, task, FRESH, "oracle" if "oracle" in case.world.baselines else "random")
    strange = refused_replies(case, task, guided.actions[0] if case.effort.near_misses else "")
    assert len(strange) >= STRANGE_REPLIES
    frame = Listener()
    limits = Limits(turns=10_000, actions_per_turn=case.world.limits_of(task).actions_per_turn)
    rules = EpisodeConfig(case.world, FORM, limits, RetryPolicy(60.0, 0), frame)
    episode = Episode(rules, task, 0, 0, seeding.derive(FRESH, "checked episode", task.id))
    episode.open()
    assert frame.text == guided.first.text
    for count, reply in enumerate(strange, start=1):
        episode.receive(reply, (), (), True)
        episode.settle()
        assert not episode.over and episode.remaining.turns == limits.turns - count, reply[:100]
    # The episode goes on as though nothing had been said.
    for turn in guided.turns:
        episode.receive(FORM.write(turn.decision), (), (), True)
        episode.settle()
        if not episode.over:
            assert frame.text == turn.steps[-1].observation.text
    assert episode.over == (guided.steps[-1].terminated or guided.steps[-1].truncated)
    episode.close()


def test_the_texts_tell_a_newcomer_what_to_do(case: Case) -> None:
    """Whatever a baseline policy does, its first word was to be read before, and a refusal names one of those words."""
    words = set()
    for task in case.world.tasks("test", 3):
        told = f"{case.world.instruction} {case.world.grammar}".lower()
        for baseline in case.world.baselines:
            episode = play(case.world, task, FRESH, baseline)
            seen = told + " " + episode.first.text.lower()
            for action, step in zip(episode.actions, episode.steps, strict=True):
                word = action.replace("[", " ").split()[0].lower()
                assert word in seen, f"{action!r} by {baseline} at {task.id}: {word!r} was never told"
                words.add(word)
                seen += " " + step.observation.text.lower()
        with closing(open_episode(case.world, task, FRESH)) as environment:
            environment.reset()
            refusal = environment.step("do what I mean")
        assert not refusal.valid
        assert any(word in refusal.observation.text.lower() for word in words), refusal.observation.text


def test_every_action_that_the_text_offers_is_accepted(case: Case) -> None:
    if case.name not in OFFERED:
        pytest.skip(
            f"{case.name} lists no actions: what its random baseline policy draws from is accepted, says the checker"
        )
    tried = 0
    for task in case.world.tasks("test", case.effort.sample):
        played = play(case.world, task, FRESH, "random")
        seen = [played.first, *(step.observation for step in played.steps)]
        for place in range(0, len(played.actions), max(1, len(played.actions) // 4)):
            for action in OFFERED[case.name](case.world, seen[place].text):
                with closing(open_episode(case.world, task, FRESH)) as environment:
                    environment.reset()
                    for earlier in played.actions[:place]:
                        environment.step(earlier)
                    assert environment.step(action).valid, f"{action!r} after {played.actions[:place]} at {task.id}"
                tried += 1
    assert tried


# What baseline policies reach, and what is paid


def test_random_succeeds_as_often_as_is_recorded(case: Case, pytestconfig: pytest.Config) -> None:
    episodes = pytestconfig.getoption("random_episodes") or case.effort.random_episodes
    fresh = score(case.world, "random", episodes, FRESH)
    before = recorded(case, episodes)
    assert may_be_of_one_chance(fresh.success, before.success), f"{fresh.success} and {before.success}"
    assert agree(fresh.rewards, before.rewards), f"{fresh.rewards} and {before.rewards}"


def recorded(case: Case, episodes: int) -> Score:
    """What `turnwise baselines` found. As many other episodes, where it played fewer than were asked for by an option,
    or with other parameters: of a slow world 5,000 take an hour, which is too long whenever its code has changed.
    """
    if case.parameters:
        return score(case.world, "random", episodes, FRESH + 1)
    lines = {line.key: line for line in read_lines(RECORD.read_text())}
    line = lines.get((case.name, "", "random"))
    assert line is not None, f"turnwise baselines {case.name} must have been run: {RECORD} has no line of it"
    assert line.version == case.world.version, f"turnwise baselines {case.name} must be run again: another version"
    return line.score if line.score.episodes >= episodes else score(case.world, "random", episodes, FRESH + 1)


def may_be_of_one_chance(one: Interval, other: Interval) -> bool:
    """Whether two shares of successes may be of one chance, by Fisher's exact test: it holds for few episodes."""
    successes = [[round(each.value * each.count), round((1 - each.value) * each.count)] for each in (one, other)]
    return float(stats.fisher_exact(successes).pvalue) > THREE_STANDARD_ERRORS


def agree(fresh: Interval, before: Interval) -> bool:
    """Whether two means may be of one distribution: three standard errors of their difference apart at most.

    A few episodes that are all alike say nothing of how much episodes vary: what was recorded of many does.
    """
    of_before = half_width(before) / 1.96
    of_fresh = max(half_width(fresh) / 1.96, of_before * math.sqrt(before.count / fresh.count))
    return abs(fresh.value - before.value) <= 3 * math.hypot(of_fresh, of_before) + 1e-9


def half_width(interval: Interval) -> float:
    return 0.0 if interval.low is None or interval.high is None else (interval.high - interval.low) / 2


def test_rewards_sum_as_documented(case: Case) -> None:
    if case.name not in DOCUMENTED:
        assert not type(case.world).__module__.startswith("envs."), "a world of ours must document its rewards"
        pytest.skip(f"{case.name} documents no sum of its own")
    for task in first_tasks(case.world, "test", case.effort.tasks):
        for baseline in case.world.baselines:
            episode = play(case.world, task, FRESH, baseline)
            sums: dict[str, float] = {}
            for step in episode.steps:
                for name, value in step.rewards.items():
                    sums[name] = sums.get(name, 0.0) + value
            assert DOCUMENTED[case.name](episode, sums), f"{sums} after {episode.actions} at {task.id}"


# What is held


def test_close_frees_what_make_took(case: Case) -> None:
    tasks = case.world.tasks("train", 3)

    def open_and_close(count: int) -> list[weakref.ref]:
        gone = []
        for number in range(count):
            with closing(open_episode(case.world, tasks[number % len(tasks)], number)) as environment:
                environment.reset()
                environment.step("look")
            gone.append(weakref.ref(environment))
        return gone

    def grown_in_a_round() -> dict[str, int]:
        before = held()
        gone = open_and_close(case.effort.opened)
        gc.collect()
        assert [reference for reference in gone if reference() is not None] == []
        return more_than(before, held())

    # A world may keep things to lend them again, and a server that lives here the threads that it once needed: rounds
    # come in which these do not grow. What leaks grows in every round.
    open_and_close(3)
    gc.freeze()  # the world itself stays, which may be a million objects: no collection below goes over them
    assert not all(grown_in_a_round() for _ in range(4))


def more_than(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What has become more, and by how much. What an earlier call still held may go at any time."""
    return {what: count - before[what] for what, count in after.items() if count > before[what]}


def held() -> dict[str, int]:
    """What this process holds that a garbage collection does not free."""
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    children = sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children"))
    return {"file descriptors": descriptors, "threads": threads, "child processes": children}
