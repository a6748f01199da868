"""Plans and lessons of scripted baselines: they are true, and what goes wrong on purpose is wrong in every format."""

from __future__ import annotations

import pytest
from agent_samples import CONTEXTS, THOUGHTFUL, Climb, Disturbed, Hill, answer_in_tokens, rules_for

from turnwise.agent.context import make_context
from turnwise.agent.formats import FORMATS, ThinkAnswerFormat, make_format
from turnwise.agent.imitation import tokenized
from turnwise.agent.loop import make_episodes, play_scripted
from turnwise.agent.modes import Mode, PlanMode, ReflectMode
from turnwise.agent.scripted import MISTAKEN
from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Environment, Limits, Remaining, ScriptedAction, Task


def demonstrated(mode: Mode, baselines: list[str], *, looks_ahead: bool = True, turns: int = 3) -> Trajectory:
    world = Hill(4, Limits(turns, 1))
    episodes = make_episodes(rules_for(world, mode=mode), world.tasks("train", 1), 1, seed=0)
    (trajectory,) = play_scripted(
        episodes, ThinkAnswerFormat().demonstrate, lambda episode, turn: baselines[turn], 0, looks_ahead=looks_ahead
    ).trajectories
    return trajectory


def thoughts(trajectory: Trajectory) -> list[str]:
    return [turn.thought for turn in trajectory.turns if turn.kind is not TurnKind.ACT]


def acted(trajectory: Trajectory) -> list[Turn]:
    return [turn for turn in trajectory.turns if turn.kind is TurnKind.ACT]


def test_a_demonstrated_plan_is_what_the_oracle_then_does() -> None:
    trajectory = demonstrated(PlanMode(tokens=9), ["oracle"] * 3)
    assert trajectory.success
    assert thoughts(trajectory) == [", ".join(action for turn in acted(trajectory) for action in turn.actions)]


def test_a_demonstrated_lesson_names_what_was_refused_and_what_is_done_instead() -> None:
    trajectory = demonstrated(ReflectMode(tokens=9), [MISTAKEN, "oracle", "oracle"])
    assert thoughts(trajectory) == ["up up was refused; up"]
    assert [turn.actions for turn in acted(trajectory)] == [("up up",), ("up",), ("up",)]


class Library(Hill):
    """The hill with actions of the form `verb[argument]`, so that every format can write them."""

    verbs = frozenset({"search", "answer"})

    def make(self, task: Task, seed: int) -> Environment:
        return Librarian(self.top, task, seed)


class Librarian(Climb):
    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("look", ("search[hills]",))


@pytest.mark.parametrize("world", [Hill(), Library()], ids=["free actions", "verbs"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_error_on_purpose_is_an_invalid_turn_in_every_format(name: str, world: Hill) -> None:
    if name == "search" and world.verbs is None:
        pytest.skip("the format search writes no free actions")
    written = make_format(name, world)
    episodes = make_episodes(rules_for(world, format=written, limits=Limits(2)), world.tasks("train", 1), 1, seed=0)
    (trajectory,) = play_scripted(episodes, written.demonstrate, lambda episode, turn: MISTAKEN, 0).trajectories
    assert [turn.rewards["invalid_turn"] for turn in trajectory.turns] == [1.0, 1.0]
    assert [turn.invalid is None for turn in trajectory.turns] == [world.verbs is None] * 2


def test_after_a_failed_attempt_the_lesson_is_the_whole_way() -> None:
    trajectory = demonstrated(ReflectMode(tokens=14, attempts=2), [MISTAKEN, *["oracle"] * 3], turns=1)
    assert thoughts(trajectory) == ["the limit came first; up"]
    assert [turn.attempt for turn in trajectory.turns] == [0, 0, 1]


@pytest.mark.parametrize("looks_ahead", [True, False])
def test_only_a_baseline_that_looks_ahead_opens_another_environment(looks_ahead: bool) -> None:
    world = Disturbed(Hill(100, Limits(1)), lambda call: None)
    episodes = make_episodes(rules_for(world, mode=PlanMode(tokens=9)), world.tasks("train", 1), 1, seed=0)
    (trajectory,) = play_scripted(
        episodes, ThinkAnswerFormat().demonstrate, lambda episode, turn: "oracle", 0, looks_ahead=looks_ahead
    ).trajectories
    world.wait_until_closed()
    assert world.count("make") == world.count("close") == 1 + looks_ahead
    assert thoughts(trajectory) == ["up" if looks_ahead else "go on"]


@pytest.mark.parametrize("budget", [100_000, 300])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("mode", THOUGHTFUL)
def test_demonstrated_thoughts_have_the_tokens_that_an_episode_would_give_them(
    frame: ChatFrame, mode: str, context: str, budget: int
) -> None:
    form_of_all, section, world = ThinkAnswerFormat(), CONTEXTS[context], Hill(100, Limits(4, 1))
    rules = rules_for(world, mode=THOUGHTFUL[mode], context=section)
    episodes = make_episodes(rules, world.tasks("train", 1), 1, seed=0)
    baselines = [MISTAKEN, "oracle", MISTAKEN, MISTAKEN] * 5
    written = play_scripted(
        episodes, form_of_all.demonstrate, lambda episode, turn: baselines[turn], 0, looks_ahead=True
    )
    longest = {TurnKind.ACT: 64, TurnKind.PLAN: 20, TurnKind.REFLECT: 20}
    said = tokenized(written.trajectories[0], frame, form_of_all, make_context(section, frame, None, budget), longest)
    rules = rules_for(world, frame, mode=THOUGHTFUL[mode], context=section, token_budget=budget)
    (episode,) = make_episodes(rules, world.tasks("train", 1), 1, seed=0)
    episode.open()
    for turn in said.turns:
        assert episode.ask.kind is turn.kind
        assert tuple(episode.context[-len(turn.observation_tokens) :]) == turn.observation_tokens
        assert (len(episode.context) == len(turn.observation_tokens)) == turn.opens_segment
        answer_in_tokens(episode, frame, turn.reply)
    assert episode.over
