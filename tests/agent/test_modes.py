"""Modes as functions of an attempt's turns: what is asked, when, in which words, and what a demonstration says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.agent.context import Ask
from turnwise.agent.modes import MODES, Mode, PlainMode, PlanMode, ReflectMode, make_mode
from turnwise.agent.modes.steps import as_many_as_fit, worded
from turnwise.config.agent import ModeSection
from turnwise.data.trajectory import Ending, Turn, TurnKind

PLAN = Ask(TurnKind.PLAN, 12, "Write a plan in one thought, without an action.")
REVISION = Ask(TurnKind.PLAN, 12, "Revise the plan in one thought, without an action.")
LESSON = Ask(TurnKind.REFLECT, 12, "Write in one thought, without an action, what went wrong and what to do instead.")


def turn(kind: TurnKind = TurnKind.ACT, **changes: Any) -> Turn:
    """A turn that went well, unless `changes` say otherwise."""
    acted = kind is TurnKind.ACT
    went_well = {"actions": ("up",) if acted else (), "effective": acted}
    return Turn("", (), "", (), (), kind=kind, **{**went_well, **changes})


WELL, PLANNED, LEARNED, SUMMED = turn(), turn(TurnKind.PLAN), turn(TurnKind.REFLECT), turn(TurnKind.SUMMARY)
UNREADABLE = turn(actions=(), invalid="Reply so.", effective=False, rewards={"invalid_turn": 1.0})
REFUSED = turn(actions=("fly",), effective=False, rewards={"invalid_turn": 1.0})
IDLE = turn(actions=("up", "stay"), effective=False)
PUNISHED = turn(rewards={"hurt": -1.0, "climbed": 0.5})


def test_the_modes_are_those_of_the_configuration() -> None:
    assert tuple(MODES) == ("plain", "plan", "reflect")
    assert all(mode.name == name for name, mode in MODES.items())
    assert isinstance(make_mode(ModeSection()), PlainMode)
    assert make_mode(ModeSection(name="plan", tokens=12, every=3)) == PlanMode(tokens=12, every=3)
    section = ModeSection(name="reflect", tokens=9, attempts=2, signs=("invalid",), train_thoughts=False)
    assert make_mode(section) == ReflectMode(tokens=9, attempts=2, signs=("invalid",), train_thoughts=False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "plan"}, "the mode 'plan' must have tokens"),
        ({"name": "plain", "tokens": 8}, "the mode 'plain' does not read tokens"),
        ({"name": "plan", "tokens": 8, "attempts": 2}, "the mode 'plan' does not read attempts"),
        ({"name": "reflect", "tokens": 8, "every": 2}, "the mode 'reflect' does not read every"),
        ({"name": "reflect"}, "the mode 'reflect' must have tokens"),
        ({"name": "reflect", "tokens": 0}, "greater than or equal to 1"),
        ({"name": "reflect", "tokens": 8, "attempts": 0}, "greater than or equal to 1"),
    ],
)
def test_an_option_that_a_mode_does_not_read_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModeSection(**values)


def test_plain_asks_for_nothing() -> None:
    for turns in ([], [WELL], [UNREADABLE], [REFUSED, IDLE, PUNISHED]):
        assert PlainMode().before_acting(turns) is None
        assert PlainMode().after_failure(0) is None


PLANS: dict[str, tuple[PlanMode, list[Turn], Ask | None]] = {
    "first": (PlanMode(tokens=12), [], PLAN),
    "once is enough": (PlanMode(tokens=12), [PLANNED], None),
    "all goes well": (PlanMode(tokens=12), [PLANNED, WELL, WELL, WELL], None),
    "before it is due": (PlanMode(tokens=12, every=2), [PLANNED, WELL], None),
    "due": (PlanMode(tokens=12, every=2), [PLANNED, WELL, WELL], REVISION),
    "due, summaries do not count": (PlanMode(tokens=12, every=2), [PLANNED, WELL, SUMMED], None),
    "not due again at once": (PlanMode(tokens=12, every=2), [PLANNED, WELL, WELL, PLANNED, WELL], None),
    "an unreadable reply": (PlanMode(tokens=12), [PLANNED, UNREADABLE], REVISION),
    "a refused action": (PlanMode(tokens=12), [PLANNED, REFUSED], REVISION),
    "no effect": (PlanMode(tokens=12), [PLANNED, IDLE], REVISION),
    "punished": (PlanMode(tokens=12), [PLANNED, PUNISHED], REVISION),
    "failed, and summarised": (PlanMode(tokens=12), [PLANNED, REFUSED, SUMMED], REVISION),
    "the failure was planned for": (PlanMode(tokens=12), [PLANNED, REFUSED, PLANNED], None),
    "an old failure": (PlanMode(tokens=12), [PLANNED, REFUSED, PLANNED, WELL], None),
    "a sign that is not watched": (PlanMode(tokens=12, signs=("invalid",)), [PLANNED, IDLE], None),
    "punished less than that": (PlanMode(tokens=12, negative_below=-0.6), [PLANNED, PUNISHED], None),
}


@pytest.mark.parametrize(("mode", "turns", "asked"), PLANS.values(), ids=PLANS.keys())
def test_a_plan_is_asked_for(mode: PlanMode, turns: list[Turn], asked: Ask | None) -> None:
    assert mode.before_acting(turns) == asked


LESSONS: dict[str, tuple[ReflectMode, list[Turn], Ask | None]] = {
    "at the beginning": (ReflectMode(tokens=12), [], None),
    "all goes well": (ReflectMode(tokens=12), [WELL], None),
    "an unreadable reply": (ReflectMode(tokens=12), [WELL, UNREADABLE], LESSON),
    "a refused action": (ReflectMode(tokens=12), [REFUSED], LESSON),
    "punished": (ReflectMode(tokens=12), [PUNISHED], LESSON),
    "no effect is not watched": (ReflectMode(tokens=12), [IDLE], None),
    "no effect is watched": (ReflectMode(tokens=12, signs=("ineffective",)), [IDLE], LESSON),
    "once is enough": (ReflectMode(tokens=12), [REFUSED, LEARNED], None),
    "an error, summarised": (ReflectMode(tokens=12), [REFUSED, SUMMED], LESSON),
    "a lesson, summarised": (ReflectMode(tokens=12), [REFUSED, LEARNED, SUMMED], None),
    "another error": (ReflectMode(tokens=12), [REFUSED, LEARNED, REFUSED], LESSON),
}


@pytest.mark.parametrize(("mode", "turns", "asked"), LESSONS.values(), ids=LESSONS.keys())
def test_a_lesson_is_asked_for(mode: ReflectMode, turns: list[Turn], asked: Ask | None) -> None:
    assert mode.before_acting(turns) == asked


def test_a_lesson_after_a_failure_is_asked_for_as_long_as_attempts_are_left() -> None:
    mode = ReflectMode(tokens=12, attempts=3, train_thoughts=False)
    asked = [mode.after_failure(attempt) for attempt in range(3)]
    lesson = Ask(
        TurnKind.REFLECT,
        12,
        "The attempt failed. Write in one thought, without an action, what to do in the next one.",
        trained=False,
    )
    assert asked == [lesson, lesson, None]
    assert ReflectMode(tokens=12).after_failure(0) is None


any_turns = st.lists(st.sampled_from([WELL, UNREADABLE, REFUSED, IDLE, PUNISHED, SUMMED]), max_size=12)
thoughtful = st.sampled_from([PlanMode(tokens=9, every=1), PlanMode(tokens=9), ReflectMode(tokens=9)])


@given(mode=thoughtful, answers=any_turns)
def test_between_two_thoughts_lies_an_acting_turn(mode: Mode, answers: list[Turn]) -> None:
    turns: list[Turn] = []
    for answer in answers:
        if ask := mode.before_acting(turns):
            turns.append(turn(ask.kind))
            assert mode.before_acting(turns) is None
        turns.append(answer)
    kinds = [each.kind for each in turns if each.kind is not TurnKind.SUMMARY]
    assert all(TurnKind.ACT in pair for pair in pairwise(kinds))


SAID = {
    "a plan": (PlanMode(tokens=40), [], None, "up, up, down"),
    "as much as fits: five words and marks": (PlanMode(tokens=8), [], None, "up, up, down"),
    "a step less": (PlanMode(tokens=7), [], None, "up, up"),
    "a step at least": (PlanMode(tokens=1), [], None, "up"),
    "a refused action": (ReflectMode(tokens=8), [REFUSED], None, "fly was refused; up"),
    "no room for what was refused": (ReflectMode(tokens=7), [REFUSED], None, "up, up"),
    "an unreadable reply": (
        ReflectMode(tokens=10),
        [UNREADABLE],
        None,
        "my reply had no action; up",
    ),
    "a punished one": (ReflectMode(tokens=12), [PUNISHED], None, "up was punished; up, up, down"),
    "no effect": (ReflectMode(tokens=10, signs=("ineffective",)), [IDLE], None, "up, stay changed nothing; up"),
    "a failed attempt": (ReflectMode(tokens=8), [WELL, LEARNED], Ending.FAILURE, "up failed; up"),
    "an attempt cut off": (ReflectMode(tokens=9), [WELL], Ending.TURN_LIMIT, "the limit came first; up"),
}


@pytest.mark.parametrize(("mode", "turns", "ending", "said"), SAID.values(), ids=SAID.keys())
def test_a_demonstration_says(mode: Mode, turns: list[Turn], ending: Ending | None, said: str) -> None:
    assert mode.demonstrated(turns, ending, ["up", "up", "down"]) == said


def test_a_step_keeps_its_argument_only_where_it_was_shown() -> None:
    actions = ["search[Avo time zone]", "answer[UTC+1]", "click[b-1]", "type [12] [avo] [1]", "Left", "get 1 oak log"]
    shown = "In which time zone is Avo? A page with UTC+2 and B-1 and 12."
    assert worded(actions, shown) == ["search Avo time zone", "answer", "click b-1", "type", "Left", "get 1 oak log"]
    assert worded(["type [12] [avo] [1]"], f"{shown} 1") == ["type 12 avo 1"]


@given(steps=st.lists(st.sampled_from(["up", "far down"]), min_size=1, max_size=9), tokens=st.integers(1, 40))
def test_as_many_of_the_first_steps_are_said_as_fit(steps: list[str], tokens: int) -> None:
    texts = [beginning + ", ".join(steps[:count]) for beginning in ("", "so: ") for count in range(1, len(steps) + 1)]
    text = as_many_as_fit("so: ", steps, tokens)
    # Words and marks, and three for the marks of the format and the end of the reply.
    lengths = {each: len(each.split()) + each.count(",") + each.count(":") + 3 for each in texts}
    assert text == steps[0] or lengths[text] <= tokens
    longer = [each for each in texts if each.startswith(text) and each != text]
    assert all(lengths[each] > tokens for each in longer if each.startswith("so: ") or not text.startswith("so: "))
