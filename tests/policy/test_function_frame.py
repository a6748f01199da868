"""Contexts with declared functions and answers to their calls are what chat templates of published models render."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_template_samples import FAMILIES, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.agent.formats import NativeToolsFormat
from turnwise.errors import ConfigurationError
from turnwise.policy.function_frame import FunctionFrame, frame_of
from turnwise.policy.tokenizer import CHAT_TEMPLATE, ChatFrame
from turnwise.world import ScriptedAction

WITH_FUNCTIONS = ["qwen2.5", "qwen3", "qwen3-2507"]
FORM = NativeToolsFormat(frozenset({"search", "answer"}))
FRAMES = {family: FunctionFrame(tokenizer_of(family), FORM.functions) for family in WITH_FUNCTIONS}
UNREADABLE = "I do not know."

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=20)
called = st.tuples(texts, st.lists(st.sampled_from(["search", "answer"]), min_size=1, max_size=2), texts)
"""A thought, the functions that are called, and their argument."""


def reply_of(thought: str, verbs: list[str], argument: str) -> str:
    return FORM.write(ScriptedAction(thought, tuple(f"{verb}[{argument}]" for verb in verbs)))


def calling(thought: str, verbs: list[str], argument: str) -> dict[str, Any]:
    """The same reply as a message with calls."""
    calls = [{"name": verb, "arguments": {"text": f" {argument}"}} for verb in verbs]
    return {
        "role": "assistant",
        "content": FORM.escape(thought),
        "tool_calls": [{"type": "function", "function": call} for call in calls],
    }


def rendered(frame: FunctionFrame, messages: list[dict[str, Any]]) -> str:
    text: str = frame.tokenizer.apply_chat_template(
        messages, tools=FORM.functions.signatures, tokenize=False, add_generation_prompt=True
    )
    return text


def spelled(frame: ChatFrame, tokens: tuple[int, ...]) -> str:
    return frame.tokenizer.decode(list(tokens), skip_special_tokens=False)


@pytest.mark.parametrize("family", WITH_FUNCTIONS)
@pytest.mark.parametrize("system", [None, "Answer."])
@given(replies=st.lists(called, min_size=2, max_size=2), answers=st.lists(texts, min_size=2, max_size=2))
@settings(max_examples=20, deadline=None)
def test_calls_and_answers_are_spelled_as_the_template_renders_them(
    family: str, system: str | None, replies: list[tuple[str, list[str], str]], answers: list[str]
) -> None:
    frame = FRAMES[family]
    context = frame.opening(system, "Where?")
    messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": "Where?"})
    for reply, answer in zip(replies, answers, strict=True):
        sampled = frame.reply(reply_of(*reply))
        context += sampled + frame.continuation(FORM.observation(answer), sampled, answers_call=True)
        messages += [calling(*reply), {"role": "tool", "content": FORM.observation(answer)}]
    assert spelled(frame, context) == rendered(frame, messages)


@pytest.mark.engine
def test_a_server_that_is_given_the_functions_shows_them_as_they_were_shown_in_training() -> None:
    """Templates show functions as JSON, so that a key more, or another order of keys, is another prompt."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

    given = [ChatCompletionToolsParam.model_validate(each) for each in FORM.functions.signatures]
    assert json.dumps([each.model_dump() for each in given]) == json.dumps(FORM.functions.signatures)


@pytest.mark.parametrize("family", WITH_FUNCTIONS)
def test_a_reply_without_a_call_is_answered_by_the_user(family: str) -> None:
    frame = FRAMES[family]
    bad, good = frame.reply(UNREADABLE), frame.reply(reply_of("so", ["search"], "sea"))
    context = frame.opening(None, "Where?") + bad + frame.continuation(FORM.form, bad)
    context += good + frame.continuation("Blue.", good, answers_call=True)
    messages = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": UNREADABLE},
        {"role": "user", "content": FORM.form},
        calling("so", ["search"], "sea"),
        {"role": "tool", "content": "Blue."},
    ]
    assert spelled(frame, context) == rendered(frame, messages)


def test_qwen3s_template_keeps_thoughts_where_functions_answer_as_the_growing_context_does() -> None:
    frame = FRAMES["qwen3"]
    reply = frame.reply("<think>\nI look it up.\n</think>\n\n" + reply_of("", ["search"], "sea"))
    context = frame.opening(None, "Where?") + reply + frame.continuation("Blue.", reply, answers_call=True)
    messages = [
        {"role": "user", "content": "Where?"},
        {**calling("", ["search"], "sea"), "reasoning_content": "I look it up."},
        {"role": "tool", "content": "Blue."},
    ]
    assert spelled(frame, context) == rendered(frame, messages)


@pytest.mark.parametrize("family", WITH_FUNCTIONS)
def test_an_answer_after_a_reply_that_did_not_end_closes_it_first(family: str) -> None:
    frame = FRAMES[family]
    reply = frame.reply("a")
    whole = frame.continuation("b", reply, answers_call=True)
    assert frame.continuation("b", reply[:-1], answers_call=True) == (frame.end_token, *whole)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("llama3", "shows functions, by its argument tools"),
        ("gemma2", "shows functions, by its argument tools"),
        ("gemma3", "shows functions, by its argument tools"),
        ("llama3.1", "the policy's chat template spells it otherwise"),
    ],
)
def test_a_template_that_does_not_serve_the_functions_is_refused(family: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{said}.*TW-functions-not-shown"):
        FunctionFrame(tokenizer_of(family), FORM.functions)


def test_a_template_that_rewrites_answers_is_refused() -> None:
    tokenizer = tokenizer_of("qwen2.5")
    template = tokenizer.chat_template
    assert isinstance(template, str)
    tokenizer.chat_template = template.replace("{{- message.content }}", "{{- message.content | tojson }}")
    with pytest.raises(ConfigurationError, match="TW-functions-not-shown"):
        FunctionFrame(tokenizer, FORM.functions)
    tokenizer.chat_template = template.replace(
        '{%- elif message.role == "tool" %}', "{%- elif message.role == \"tool\" %}{{ raise_exception('no') }}"
    )
    with pytest.raises(ConfigurationError, match="TW-functions-not-shown"):
        FunctionFrame(tokenizer, FORM.functions)


def test_without_functions_the_frame_is_the_plain_one_and_no_message_has_a_role_of_its_own() -> None:
    tokenizer = tokenizer_of("qwen2.5")
    frame = frame_of(tokenizer, (), None)
    assert type(frame) is ChatFrame
    assert frame.continuation("a", (), answers_call=True) == frame.continuation("a", ())


def test_the_template_of_our_own_policies_shows_no_functions() -> None:
    tokenizer = tokenizer_of(next(iter(FAMILIES)))
    tokenizer.chat_template = CHAT_TEMPLATE
    with pytest.raises(ConfigurationError, match="TW-functions-not-shown"):
        FunctionFrame(tokenizer, FORM.functions)
