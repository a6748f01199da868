"""The right answer is put in the place of every reply, and the tokens that spell it are scored."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from agent_samples import Hill, form, play_texts, rules_for

from turnwise.agent.formats import FORMATS, Format, LineFormat, ThinkAnswerFormat
from turnwise.agent.hindsight import (
    answer_scores,
    answered,
    hindsight,
    shown_again,
    shown_answers,
    shown_hindsight,
    spelled_answer,
)
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Limits, Task

every_format = pytest.mark.parametrize("name", FORMATS)


@every_format
def test_the_scored_tokens_spell_the_answer_and_no_more(name: str, frame: ChatFrame) -> None:
    written = FORMATS[name](frozenset({"search", "answer"}))
    tokens, spelling = spelled_answer("answer[Up at height 3]", written, frame)
    scored = frame.tokenizer.decode(list(tokens[spelling.start : spelling.stop]))
    assert "Up at height 3" in scored and len(scored) <= len("Up at height 3") + 2  # a token may begin before it
    assert written.read(frame.decode(tokens), 1).actions == ("answer[Up at height 3]",)


@every_format
@pytest.mark.parametrize("answer", ["an", "a", "0", "text"])
def test_letters_that_stand_before_the_answer_too_are_not_scored_in_its_place(
    name: str, answer: str, frame: ChatFrame
) -> None:
    written = FORMATS[name](frozenset({"search", "answer"}))
    tokens, spelling = spelled_answer(f"answer[{answer}]", written, frame)
    before, text = frame.decode(tokens[: spelling.stop]), frame.decode(tokens)
    longer = frame.decode(spelled_answer(f"answer[{answer}, or not]", written, frame)[0])
    assert longer[len(before) :].startswith(", or not") or longer[len(before) - 1 :].startswith(", or not")
    assert text.startswith(before)


def test_an_action_without_a_verb_is_the_answer_as_a_whole(frame: ChatFrame) -> None:
    tokens, spelling = spelled_answer("jump up", ThinkAnswerFormat(), frame)
    assert frame.tokenizer.decode(list(tokens[spelling.start : spelling.stop])).strip() == "jump up"


def test_each_turns_context_is_followed_by_the_answer(frame: ChatFrame) -> None:
    trajectory = play_texts(Hill(limits=Limits(turns=2)), form("up"), "nothing", frame=frame)
    written: Format = ThinkAnswerFormat()
    reply, spelling = spelled_answer("jump", written, frame)
    sequences = answered([trajectory], lambda task: "jump", written, frame)
    assert len(sequences) == len(trajectory.turns)
    context: tuple[int, ...] = ()
    for number, (turn, sequence) in enumerate(zip(trajectory.turns, sequences, strict=True)):
        context += turn.observation_tokens
        assert sequence.tokens == context + reply
        assert [place for place, of in enumerate(sequence.turn_of_token) if of == number] == [
            len(context) + place for place in spelling
        ]
        assert set(sequence.turn_of_token) == {-1, number}
        context += turn.reply_tokens


def test_a_turns_score_is_the_mean_over_the_answers_tokens(frame: ChatFrame) -> None:
    trajectories = [play_texts(Hill(limits=Limits(turns=turns)), *["nothing"] * turns, frame=frame) for turns in (1, 2)]
    sequences = answered(trajectories, lambda task: "jump", LineFormat(), frame)
    counts = np.where(sequences.mask, np.cumsum(sequences.mask), 99.0)  # 99 where nothing is scored
    found = answer_scores(sequences, sequences.rows(counts), [len(each.turns) for each in trajectories])
    (each,) = set(sequences.reply_counts.tolist())
    of_sequences = [each * number + (each + 1) / 2 for number in range(len(sequences))]
    expected = iter(of_sequences)
    assert found.tolist() == [[next(expected) for _ in trajectory.turns] for trajectory in trajectories]
    assert math.isfinite(found.values.sum())


def test_an_episode_is_shown_another_that_solved_the_task_or_else_its_own_end(frame: ChatFrame) -> None:
    written = ThinkAnswerFormat()
    short = Hill(top=1, limits=Limits(turns=1))
    solved = [replace(play_texts(short, form("up"), frame=frame), replica=each) for each in (0, 1)]
    failed = play_texts(Hill(limits=Limits(turns=1)), form("stay"), frame=frame)
    assert [each.success for each in (*solved, failed)] == [True, True, False]
    actions = "This solves the task: up"
    assert hindsight([*solved, failed], written) == [actions, actions, actions]
    alone, of_failed = hindsight([solved[0], replace(failed, group=1)], written)
    assert alone is None
    assert of_failed == f"An earlier attempt ended with turn limit: {failed.final_observation}"


def test_the_end_that_is_shown_is_the_worlds_text_and_an_episode_without_a_turn_is_shown_nothing(
    frame: ChatFrame,
) -> None:
    rules = rules_for(Hill(limits=Limits(turns=1)), frame=frame, instruction="Climb.")
    played = play_texts(Hill(limits=Limits(turns=1)), form("stay"), frame=frame, instruction="Climb.")
    shown = replace(played, final_observation="Observation: it rains", group=1)
    (text,) = hindsight([shown], FORMATS["react"](frozenset({"answer"})))
    assert text == "An earlier attempt ended with turn limit: it rains"
    knowing, sequences = shown_hindsight([replace(played, turns=()), played], rules)
    assert knowing == [1] and len(sequences) == 1


def test_hindsight_lengthens_the_first_message_and_changes_no_other_token(frame: ChatFrame) -> None:
    rules = rules_for(Hill(limits=Limits(turns=2)), frame=frame, instruction="Climb.")
    trajectory = play_texts(Hill(limits=Limits(turns=2)), form("up"), "nothing", frame=frame, instruction="Climb.")
    sequence = shown_again(trajectory, "Up is right.", frame, rules.instruction)
    (before,) = trajectory.segments(every_reply=True)
    first = trajectory.turns[0].observation_tokens
    opening = frame.opening("Climb.", f"{trajectory.turns[0].observation}\nUp is right.")
    assert sequence.tokens.tolist() == [*opening, *before.tokens[len(first) :]]
    assert sequence.turn_of_token.tolist() == [*[-1] * len(opening), *before.turn_of_token[len(first) :]]
    with pytest.raises(ValueError, match="in the frame that it was played in"):
        shown_again(trajectory, "Up is right.", frame, "Stay.")


class AnsweredHill(Hill):
    """A hill whose tasks have a right answer."""

    def answer(self, task: Task) -> str:
        return f"up from {task.id}"


def test_a_privileged_critic_reads_the_right_answer_in_the_first_message(frame: ChatFrame) -> None:
    world = AnsweredHill(limits=Limits(turns=2))
    rules = rules_for(world, frame=frame, instruction="Climb.")
    trajectories = [
        play_texts(world, form("up"), text, frame=frame, instruction="Climb.") for text in ("no", "nothing")
    ]
    sequences = shown_answers(trajectories, rules)
    for trajectory, sequence in zip(trajectories, sequences, strict=True):
        text = f"This solves the task: up from {trajectory.task.id}"
        assert sequence == shown_again(trajectory, text, frame, "Climb.")[0]
    assert len(shown_answers([], rules)) == 0
    assert shown_answers([replace(trajectories[0], turns=()), *trajectories], rules) == sequences, "nothing was said"
