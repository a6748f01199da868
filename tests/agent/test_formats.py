"""Any reply is read or answered with its form; what is written is read back; a world's text is never the policy's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from agent_samples import Hill, answer, rules_for
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise.agent.formats import (
    FORMATS,
    Format,
    LineFormat,
    NativeToolsFormat,
    ParsedReply,
    ReactFormat,
    SearchFormat,
    ThinkAnswerFormat,
    ToolJsonFormat,
    format_class,
    make_format,
    split_at_tags,
)
from turnwise.agent.formats.tags import tag_use
from turnwise.agent.loop import make_episodes
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError
from turnwise.world import Limits, ScriptedAction, make_world

SEARCHING = frozenset({"search", "answer"})
WITH_CALLS = [ToolJsonFormat(), ToolJsonFormat(SEARCHING), NativeToolsFormat(), NativeToolsFormat(SEARCHING)]
WITH_LINES = [LineFormat(), LineFormat(SEARCHING)]
ALL = [SearchFormat(SEARCHING), ThinkAnswerFormat(), ReactFormat(), *WITH_CALLS, *WITH_LINES]
OF_ANY_TEXT = [ThinkAnswerFormat(), ReactFormat(), ToolJsonFormat(), NativeToolsFormat()]
"""The formats that can express a thought and actions of any text."""
LABELS = ["Thought:", "Action:", "Observation:"]
LINE_LABELS = ["action:", "thought:", "search:", "ANSWER:"]
CONTROL = ["<|im_start|>assistant\n", "<|im_end|>", "<|pad|>", "<|endoftext|>", "[INST]", "Assistant:"]
CALL = '<tool_call>{"name": "act", "arguments": {"action": "up"}}</tool_call>'
PIECES = ["<", "</", ">", "<think", "think>", "||", "|", "[", "]", " ", "\n", "\r", "\x00", "\x85", "\u2028", "\ufffd"]
PIECES += ["up", "\\", '"', "{", "}", '{"name": "act", "arguments": ', '{"action": "up"}', "\\ud800", CALL]
TAGS = sorted({tag for form in FORMATS.values() for tag in form.tags})
odd_texts = st.lists(
    st.sampled_from(TAGS)
    | st.sampled_from([*LABELS, *LINE_LABELS, *CONTROL])
    | st.sampled_from(PIECES)
    | st.text(max_size=20),
    max_size=12,
).map("".join)
safe_texts = st.text(st.characters(codec="utf-8"), max_size=30).map(str.strip)
safe_texts = safe_texts.filter(
    lambda text: not any(mark in text for mark in [*TAGS, *LABELS, "||"]) and "\n" not in text
)
safe_actions = safe_texts.filter(bool)
formats = st.sampled_from(ALL)
every_format = pytest.mark.parametrize("form", ALL, ids=lambda form: f"{form.name}{'-verbs' if form.verbs else ''}")

VALID = "<think> a</think><answer> up</answer>"


@given(formats, odd_texts, st.integers(1, 3))
@example(ThinkAnswerFormat(), VALID * 2, 1)
@example(SearchFormat(), "<search></search>", 1)
@example(ThinkAnswerFormat(), "\ud800<think>\udfff</think><answer>\udc80</answer>", 1)
@example(ToolJsonFormat(), CALL * 3, 3)
@example(ToolJsonFormat(), CALL.replace("up", "\\ud800"), 1)
@example(ReactFormat(), "Thought: a\nAction: up\nAction: up\u2028Action: up", 3)
def test_any_text_is_read_as_actions_or_told_why_not(form: Format, reply: str, actions_per_turn: int) -> None:
    reading = form.read(reply, actions_per_turn)
    if reading.invalid is not None:
        assert reading.actions == () and reading.invalid
    else:
        assert 1 <= len(reading.actions) <= actions_per_turn
        assert not any(tag in text for tag in form.tags for text in [reading.thought])
        again = form.read(form.write(ScriptedAction(reading.thought, reading.actions)), actions_per_turn)
        assert again == replace(reading, thought=form.escape(reading.thought))
        assert reading.thought in reply[: form.action_begins(reply)]
        thought = form.read_thought(reply)
        assert thought.invalid and thought.actions == ()  # a reply is not both


@given(formats, odd_texts)
@example(ReactFormat(), "Thought: a\nThought: b")
def test_any_text_is_read_as_a_thought_or_told_why_not(form: Format, reply: str) -> None:
    reading = form.read_thought(reply)
    assert reading.actions == ()
    if reading.invalid is None:
        assert reading.thought
        assert form.read(reply, 3).invalid is not None
        assert form.read_thought(form.write_thought(reading.thought)).thought == form.escape(reading.thought)


@given(st.sampled_from(OF_ANY_TEXT), safe_texts, st.lists(safe_actions, min_size=1, max_size=5))
@example(ThinkAnswerFormat(), "", ["|", "|"])
@example(ThinkAnswerFormat(), "<thin", ["a <", "/answer>"])
@example(ToolJsonFormat(), "", ['say "up"', "\\ud800", "{}"])
def test_a_decision_that_was_written_is_read_back(form: Format, thought: str, actions: list[str]) -> None:
    reply = form.demonstrate(ScriptedAction(thought, tuple(actions)))
    reading = form.read(reply, len(actions))
    assert (reading.thought, reading.actions, reading.invalid) == (thought, tuple(actions), None)
    assert form.read_thought(reply[: form.action_begins(reply)]).thought == thought


@given(st.sampled_from([SearchFormat(), ToolJsonFormat(SEARCHING)]), safe_texts, st.sampled_from(["search", "answer"]))
@example(SearchFormat(), "a]b[c]]", "answer")
@example(ToolJsonFormat(SEARCHING), "a]b[c]]", "answer")
def test_a_verb_and_its_argument_that_were_written_are_read_back(form: Format, argument: str, verb: str) -> None:
    reading = form.read(form.demonstrate(ScriptedAction("so", (f"{verb}[{argument}]",))), 1)
    assert (reading.thought, reading.actions, reading.invalid) == ("so", (f"{verb}[{argument}]",), None)


@given(formats, odd_texts.filter(lambda text: text.strip() != ""))
@example(ReactFormat(), "first\n \t Action: up")
@example(ThinkAnswerFormat(), "<<answer>answer>up</answer></answer>")
def test_whatever_a_thought_quotes_it_is_a_thought_and_nothing_more(form: Format, thought: str) -> None:
    written = form.write_thought(thought)
    assert form.read_thought(written).invalid is None
    assert form.read(written, 3).actions == ()
    assert form.read(form.write(ScriptedAction(thought, ("search[a]",))), 3).actions == ("search[a]",)


@given(formats, odd_texts)
@example(ReactFormat(), "\x85Action: up")
@example(ToolJsonFormat(), CALL)
@example(ThinkAnswerFormat(), "<" + VALID)
def test_no_tag_and_no_label_of_the_format_is_left_in_what_a_world_says(form: Format, text: str) -> None:
    escaped = form.escape(text)
    assert not any(tag in escaped for tag in form.tags)
    assert form.read(escaped, 9).actions == ()
    if form.name == "react":
        assert not any(line.strip().startswith(label) for line in escaped.splitlines() for label in LABELS)
    for shown in (form.opening(text), form.observation(text)):
        assert form.read(shown, 9).actions == () and escaped in shown


@given(formats, odd_texts)
def test_what_a_world_said_is_told_apart_from_how_it_was_shown(form: Format, text: str) -> None:
    assert form.said(form.observation(text)) == form.escape(text)


@every_format
def test_an_ordinary_text_is_shown_as_it_is(form: Format) -> None:
    text = "Up. 3 < 4, a <b>bold</b> Action: none\n\tThoughts: \\ [search]"
    assert form.escape(text) == text


def test_what_a_policy_is_shown_of_a_text_that_looks_like_a_reply() -> None:
    assert ThinkAnswerFormat().observation(VALID) == r"<\think> a<\/think><\answer> up<\/answer>"
    assert ReactFormat().observation("Up.\nAction: up") == "Observation: Up.\n\\Action: up"
    assert ToolJsonFormat().observation("<tool_call>") == "<tool_response>\n<\\tool_call>\n</tool_response>"


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
def test_what_has_not_the_form_of_think_answer_is_refused_and_told_the_form(reply: str) -> None:
    assert_refused(ThinkAnswerFormat(), reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Thought: a",
        "Action: up",
        "up",
        "so\nThought: a\nAction: up",
        "Action: up\nThought: a",
        "Thought: a\nThought: b\nAction: up",
        "Thought: a\nAction: up\nObservation: Up. Height 9.",  # an observation of the policy's own invention
        "Thought: a\nAction: up\nObservation: Up.\nThought: b\nAction: up",
        "Thought: a\nObservation: Up.\nAction: up",
        "Thought: a\nAction: up\nand so on",
        "Thought: a\nAction:",
        "Thought: a\nAction: up\nAction: ",
        "Thought: a Action: up",
        "thought: a\naction: up",
        "Thought: a\n\\Action: up",
    ],
)
def test_what_has_not_the_form_of_react_is_refused_and_told_the_form(reply: str) -> None:
    assert_refused(ReactFormat(), reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "up",
        "<tool_call>up</tool_call>",
        "<tool_call></tool_call>",
        CALL + " and then",  # text after the call
        CALL.removesuffix("</tool_call>"),
        CALL + "<tool_response>Up. Height 9.</tool_response>",  # an observation of the policy's own invention
        "<tool_response>Up.</tool_response>" + CALL,
        f"<tool_call>{CALL}</tool_call>",
        CALL + "<tool_call>no</tool_call>",
        CALL.replace("act", "fly", 1),
        CALL.replace('"up"', "3"),
        CALL.replace('"up"', '["up"]'),
        CALL.replace('"up"', '" "'),
        CALL.replace('"up"', '"up", "action": "stay"'),  # the same key twice
        CALL.replace('"up"', '"up", "speed": "2"'),
        CALL.replace('{"action": "up"}', '"up"'),
        CALL.replace("name", "function"),
        CALL.replace('"name"', '"id": 1, "name"'),
        CALL.replace('"up"', "NaN"),
        CALL.replace('"up"', '"\\udfff"'),  # half of a pair of surrogates is no text
        CALL.replace('"act"', '["act"]'),
        "<tool_call>[" + CALL.removeprefix("<tool_call>").replace("</", "]</"),
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        "<tool_call>" + '{"name":' * 50_000 + "</tool_call>",
        "<tool_call>" + "9" * 100_000 + "</tool_call>",
    ],
)
def test_what_is_no_call_is_refused_and_told_the_form(reply: str) -> None:
    assert_refused(ToolJsonFormat(), reply)
    assert_refused(NativeToolsFormat(), reply)


def assert_refused(form: Format, reply: str) -> None:
    reading = form.read(reply, 9)
    assert reading.actions == ()
    assert reading.invalid is not None and form.form in reading.invalid


def test_a_call_as_chat_models_write_it_is_read() -> None:
    call = '<tool_call>\n{"name": "search", "arguments": {"text": "the sea"}}\n</tool_call>'
    assert ToolJsonFormat(SEARCHING).read(f"I look it up.\n{call}", 1).actions == ("search[the sea]",)
    assert ToolJsonFormat(SEARCHING).read(call.replace("the sea", r"caf\u00e9 \"]\""), 1).actions == (
        'search[café "]"]',
    )
    assert ToolJsonFormat(SEARCHING).read(f"{call}\n{call}\n", 2).actions == ("search[the sea]",) * 2
    assert ToolJsonFormat().read(f"so{CALL}\n", 1).thought == "so"


def test_an_action_that_holds_a_tag_can_be_written_as_json_only() -> None:
    decision = ScriptedAction("so", ("say </tool_call> <answer>",))
    assert ToolJsonFormat().read(ToolJsonFormat().demonstrate(decision), 1).actions == decision.actions
    with pytest.raises(ConfigurationError, match="TW-format-loses-actions"):
        ThinkAnswerFormat().demonstrate(decision)
    with pytest.raises(ConfigurationError, match=r"'react'.*TW-format-loses-actions"):
        ReactFormat().demonstrate(ScriptedAction("so", ("two\nlines",)))


@pytest.mark.parametrize("form", [*OF_ANY_TEXT, ToolJsonFormat(SEARCHING)])
def test_more_actions_than_a_turn_allows_make_the_reply_unreadable(form: Format) -> None:
    actions = ("search[a]", "search[b]", "answer[c]")
    reply = form.write(ScriptedAction("a", actions))
    assert form.read(reply, 3).actions == actions
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


@every_format
def test_a_thought_alone_must_say_something(form: Format) -> None:
    reading = form.read_thought(form.write_thought("  "))
    assert reading.invalid is not None and form.thought_form in reading.invalid


@every_format
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
        CALL * 20_000,
        "<tool_call>" + '{"a":' * 200_000,
        "Thought:" + "\nAction: up" * 100_000,
        "\x0b \x85" * 300_000 + "Action",
    ],
    ids=lambda reply: reply[:12].strip() or "spaces",
)
def test_a_text_of_a_megabyte_is_read_and_escaped_in_one_pass(form: Format, reply: str) -> None:
    # A reader that backtracks would be at this for years: the test's own timeout would end it.
    assert len(form.read(reply, 2).actions) <= 1
    assert form.read_thought(form.escape(reply)).actions == ()


@given(formats, odd_texts)
def test_a_reply_cut_at_its_tags_is_whole_when_joined(form: Format, reply: str) -> None:
    pieces = split_at_tags(reply, form.tags)
    assert "".join(pieces) == reply
    assert all(tag in form.tags for tag in pieces[1::2])
    assert not any(tag in text for text in pieces[0::2] for tag in form.tags)


@settings(max_examples=150)
@given(
    st.sampled_from(OF_ANY_TEXT),
    st.lists(odd_texts | safe_actions.map(lambda text: f"<think></think><answer>{text}</answer>"), max_size=4),
)
@example(ThinkAnswerFormat(), ["<think>\ud800</think><answer>\udfff</answer>"])
def test_an_episode_answers_whatever_it_is_told(form: Format, replies: list[str]) -> None:
    world = Hill(limits=Limits(turns=5, actions_per_turn=2))
    (episode,) = make_episodes(rules_for(world, format=form), world.tasks("train", 1), 1, seed=0)
    episode.open()
    for reply in [*replies, *["that is all"] * 5]:
        if not episode.over:
            answer(episode, reply)
    result = episode.result()
    assert isinstance(result, Trajectory)
    assert result.final_observation and all(turn.observation for turn in result.turns)


def test_formats_are_found_by_name_and_an_unknown_one_is_refused() -> None:
    assert {name: type(make_format(name, make_world("search", {}))) for name in FORMATS} == FORMATS
    with pytest.raises(
        ConfigurationError,
        match=r"react.*think-answer.*tool-json.*'xml'.*TW-unknown-name",
    ):
        format_class("xml")


def test_a_format_refuses_a_world_whose_actions_it_cannot_write() -> None:
    for name in FORMATS:
        if name != "search":
            assert make_format(name, Hill()).verbs is None
    with pytest.raises(ConfigurationError, match=r"'hill'.*TW-format-loses-actions"):
        make_format("search", Hill())


@every_format
def test_the_instruction_holds_the_aim_the_actions_and_the_form(form: Format) -> None:
    world = Hill()
    lines = form.instruction(world).split("\n")
    assert (*lines[:2], lines[-1]) == (world.instruction, world.grammar, form.form)
    assert len(lines) == 3 or form.name == "tool-json"


def test_functions_are_listed_as_qwens_template_lists_them() -> None:
    lines = ToolJsonFormat(SEARCHING).instruction(make_world("search", {})).split("\n")
    tools = lines[lines.index("<tools>") + 1 : lines.index("</tools>")]
    assert [json.loads(tool)["function"]["name"] for tool in tools] == ["answer", "search"]
    assert tools[0] == (
        '{"type": "function", "function": {"name": "answer", "parameters": {"type": "object", "properties": '
        '{"text": {"type": "string"}}, "required": ["text"]}}}'
    )


@pytest.mark.parametrize(
    ("reply", "use"),
    [
        ("<think>so</think><search>who</search>", 1.0),
        ("<search>who</search> and then <think>so</think>", 1.0),  # their order is not looked at
        ("<think>so</think>", 1.0),  # nor whether there is an action
        ("so", 0.0),
        ("<think>so<search>who</search>", 0.75),  # 1, 0, 1, 1
        ("<search>a</search><search>b</search>", 0.0),  # 0, 0
        ("<answer>a<answer>b<answer>c", 0.0),  # -1, 0: not below 0
        ("<think>so</think><search>a<search>b</search>", 0.75),  # 1, 1, 0, 1
    ],
)
def test_tags_are_used_well_when_each_is_there_once(reply: str, use: float) -> None:
    assert tag_use(reply, SearchFormat.tags) == use


@given(safe_texts, st.lists(safe_actions, min_size=1, max_size=5))
@example("a thought", ["|", "search: a"])
def test_a_line_holds_the_actions_without_the_thought(thought: str, actions: list[str]) -> None:
    form = LineFormat()
    reply = form.demonstrate(ScriptedAction(thought, tuple(actions)))
    assert "\n" not in reply and form.read(reply, len(actions)) == ParsedReply("", tuple(actions))


@given(safe_texts, st.sampled_from(["search", "answer"]))
@example("a]b[c]]", "answer")
def test_a_line_with_a_verb_that_was_written_is_read_back(argument: str, verb: str) -> None:
    form = LineFormat(SEARCHING)
    reply = form.demonstrate(ScriptedAction("so", (f"{verb}[{argument}]",)))
    assert reply == f"{verb}: {argument}"
    assert form.read(reply, 1) == ParsedReply("", (f"{verb}[{argument}]",))


def test_what_a_line_may_be() -> None:
    form = LineFormat(SEARCHING)
    assert form.read(" Search:  where is Randers? \n", 1).actions == ("search[where is Randers?]",)
    for reply in ("Randers", "I search: Randers", "search Randers", "search: a\nanswer: b", "action: a", "thought: a"):
        reading = form.read(reply, 1)
        assert (reading.actions, reading.invalid) == ((), form.form)
    assert form.form == 'Reply with one line and nothing else: "answer: ..." or "search: ...".'
    assert form.observation("Denmark.\nAnswer: Krone") == "Denmark.\n\\Answer: Krone"
    assert LineFormat().read("action: up|| stay", 2).actions == ("up", "stay")
