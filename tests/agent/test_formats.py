"""Any reply is read or told its form; what is written is read back."""

from __future__ import annotations

import pytest
from agent_samples import Hill, answer, rules_for
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise.agent.formats import FORMATS, Format, SearchFormat, ThinkAnswerFormat, make_format, split_at_tags
from turnwise.agent.loop import make_episodes
from turnwise.errors import ConfigurationError
from turnwise.trajectory import Trajectory
from turnwise.world import Decision, Limits, make_world

PIECES = ["<", "</", ">", "<think", "think>", "||", "|", "[", "]", " ", "\n", "\x00", "\x85", "\u2028", "\ufffd", "up"]
TAGS = sorted({tag for form in FORMATS.values() for tag in form.tags})
odd_texts = st.lists(st.sampled_from(TAGS) | st.sampled_from(PIECES) | st.text(max_size=20), max_size=12).map("".join)
safe_texts = st.text(max_size=30).map(str.strip).filter(lambda text: not any(tag in text for tag in TAGS))
safe_actions = safe_texts.filter(lambda text: bool(text) and "||" not in text)
formats = st.sampled_from([form() for form in FORMATS.values()])

VALID = "<think> a</think><answer> up</answer>"


@given(formats, odd_texts, st.integers(1, 3))
@example(ThinkAnswerFormat(), VALID * 2, 1)
@example(SearchFormat(), "<search></search>", 1)
@example(ThinkAnswerFormat(), "\ud800<think>\udfff</think><answer>\udc80</answer>", 1)
def test_any_text_is_read_as_actions_or_told_why_not(form: Format, reply: str, actions_per_turn: int) -> None:
    reading = form.read(reply, actions_per_turn)
    if reading.invalid is not None:
        assert reading.actions == () and reading.invalid
    else:
        assert 1 <= len(reading.actions) <= actions_per_turn
        assert not any(tag in text for tag in form.tags for text in (reading.thought, *reading.actions))
        assert form.read(form.write(Decision(reading.thought, reading.actions)), actions_per_turn) == reading


@given(safe_texts, st.lists(safe_actions, min_size=1, max_size=5))
@example("", ["|", "|"])
@example("<thin", ["a <", "/answer>"])
def test_a_decision_that_was_written_is_read_back_by_think_answer(thought: str, actions: list[str]) -> None:
    form = ThinkAnswerFormat()
    reading = form.read(form.write(Decision(thought, tuple(actions))), len(actions))
    assert (reading.thought, reading.actions, reading.invalid) == (thought, tuple(actions), None)


@given(safe_texts, st.sampled_from(["search", "answer"]), safe_texts)
@example("", "answer", "a]b[c]]")
def test_a_decision_that_was_written_is_read_back_by_search(thought: str, verb: str, argument: str) -> None:
    form = SearchFormat()
    reading = form.read(form.write(Decision(thought, (f"{verb}[{argument}]",))), 1)
    assert (reading.thought, reading.actions, reading.invalid) == (thought, (f"{verb}[{argument}]",), None)


def test_whitespace_between_and_inside_the_tags_is_no_part_of_what_was_meant() -> None:
    reading = ThinkAnswerFormat().read("\n<think>to the\ntop </think>\n\n<answer>up||  stay </answer> ", 2)
    assert (reading.thought, reading.actions, reading.invalid) == ("to the\ntop", ("up", "stay"), None)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "up",
        "<answer>up</answer>",  # no thought
        "<think>a</think>",  # no answer
        "<answer>up</answer><think>a</think>",  # the wrong order
        VALID + VALID,
        "so " + VALID,  # text outside the tags
        VALID + " so",
        "<think>a</think> so <answer>up</answer>",
        "<think>a</think><answer>up",  # never closed
        "<think>a<answer>up</answer></think>",  # nested
        "<think>a</think></think><answer>up</answer>",
        "<think>a</answer><answer>up</think>",  # crossed
        "</think>a<think><answer>up</answer>",
        "<think>a</think><answer><answer>up</answer></answer>",
        "<THINK>a</THINK><answer>up</answer>",
        "<think>a</think><search>up</search>",  # another format's tag
        "<think>a</think><answer></answer>",
        "<think>a</think><answer>up || </answer>",
        "<think>a</think><answer>up||||up</answer>",
    ],
)
def test_what_has_not_the_form_is_refused_and_told_the_form(reply: str) -> None:
    form = ThinkAnswerFormat()
    reading = form.read(reply, 9)
    assert reading.actions == ()
    assert reading.invalid is not None and form.form in reading.invalid


def test_more_actions_than_a_turn_allows_make_the_reply_unreadable() -> None:
    form = ThinkAnswerFormat()
    reply = form.write(Decision("a", ("up", "up", "stay")))
    assert form.read(reply, 3).actions == ("up", "up", "stay")
    assert form.read(reply, 2).actions == ()
    assert form.read(reply, 2).invalid == "At most 2 actions a turn; the reply has 3."


@pytest.mark.parametrize(
    "reply",
    [
        "<search>a</search>",
        "<think>a</think><think>b</think>",
        "<think>a</think><search>b</search><answer>c</answer>",
        "<think>a</think><search>b</answer>",
        "<search>b</search><think>a</think>",
    ],
)
def test_search_takes_a_thought_and_exactly_one_search_or_answer(reply: str) -> None:
    reading = SearchFormat().read(reply, 1)
    assert (reading.actions, reading.invalid) == ((), SearchFormat.form)


@pytest.mark.parametrize("form", [form() for form in FORMATS.values()], ids=lambda form: form.name)
@pytest.mark.parametrize(
    "reply",
    [
        "<think>" * 150_000,
        "<think>a</think>" * 70_000,
        "<" * 1_000_000,
        "</think" * 150_000,
        "<think>" + "a" * 100_000,
        "<think>a</think><answer>" + "up||" * 250_000 + "</answer>",
        "<think>a</think><answer>" + " " * 1_000_000,
        "<think>" + "\n " * 500_000 + "<think>",
    ],
    ids=["openings", "pairs", "angles", "partial closings", "long thought", "many actions", "spaces", "lines"],
)
def test_a_reply_of_a_megabyte_is_read_in_one_pass(form: Format, reply: str) -> None:
    # A reader that backtracks would be at this for years: the test's own timeout would end it.
    assert len(form.read(reply, 2).actions) <= 1


@given(formats, odd_texts)
def test_a_reply_cut_at_its_tags_is_whole_when_joined(form: Format, reply: str) -> None:
    pieces = split_at_tags(reply, form.tags)
    assert "".join(pieces) == reply
    assert all(tag in form.tags for tag in pieces[1::2])
    assert not any(tag in text for text in pieces[0::2] for tag in form.tags)


@settings(deadline=None, max_examples=150)
@given(st.lists(odd_texts | safe_actions.map(lambda text: f"<think></think><answer>{text}</answer>"), max_size=4))
@example(["<think>\ud800</think><answer>\udfff</answer>"])
def test_an_episode_answers_whatever_it_is_told(replies: list[str]) -> None:
    world = Hill(limits=Limits(turns=5, actions_per_turn=2))
    (episode,) = make_episodes(rules_for(world), world.tasks("train", 1), 1, seed=0)
    episode.open()
    for reply in [*replies, *["that is all"] * 5]:
        if not episode.over:
            answer(episode, reply)
    result = episode.result()
    assert isinstance(result, Trajectory)
    assert result.final_observation and all(turn.observation for turn in result.turns)


def test_formats_are_found_by_name_and_an_unknown_one_is_refused() -> None:
    assert {name: type(make_format(name)) for name in FORMATS} == FORMATS
    with pytest.raises(ConfigurationError, match=r"one of search, think-answer; found 'xml'"):
        make_format("xml")


def test_a_format_refuses_a_world_whose_actions_it_cannot_write() -> None:
    SearchFormat().require_expressible(make_world("search", {}))
    ThinkAnswerFormat().require_expressible(make_world("search", {}))
    ThinkAnswerFormat().require_expressible(Hill())
    with pytest.raises(ConfigurationError, match=r"the world 'hill' has another grammar.*'think-answer'"):
        SearchFormat().require_expressible(Hill())


def test_the_instruction_holds_the_aim_the_actions_and_the_form() -> None:
    world = Hill()
    assert ThinkAnswerFormat().instruction(world).split("\n") == [
        world.instruction,
        world.grammar,
        ThinkAnswerFormat().form,
    ]
