"""Contexts that grow token by token say what the chat templates of published models render, and where they do not."""

from __future__ import annotations

from functools import cache

import pytest
from chat_template_samples import FAMILIES, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import ConfigurationError
from turnwise.policy.chat_template import set_switches
from turnwise.policy.tokenizer import ChatFrame

WITHOUT_DATE = [family for family in FAMILIES if family != "llama3.2"]
THOUGHT = "<think>I look it up.</think>"
FRAMES = {family: ChatFrame(tokenizer_of(family)) for family in WITHOUT_DATE}

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=20)
"""Texts without white space, which some templates trim."""


def grown(frame: ChatFrame, system: str | None, observations: list[str], replies: list[str]) -> tuple[int, ...]:
    """The context of the next reply, by concatenation of tokens."""
    context = frame.opening(system, observations[0])
    for said, observation in zip(replies, observations[1:], strict=True):
        reply = frame.reply(said)
        context += reply + frame.continuation(observation, reply)
    return context


def rendered(frame: ChatFrame, system: str | None, observations: list[str], replies: list[str]) -> str:
    """The same conversation, as the template renders it as a whole."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    for observation, reply in zip(observations, [*replies, None], strict=True):
        messages.append({"role": "user", "content": observation})
        if reply is not None:
            messages.append({"role": "assistant", "content": reply})
    text: str = frame.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def spelled(frame: ChatFrame, tokens: tuple[int, ...]) -> str:
    return frame.tokenizer.decode(list(tokens), skip_special_tokens=False)


@pytest.mark.parametrize("family", WITHOUT_DATE)
@given(observations=st.lists(texts, min_size=4, max_size=4), replies=st.lists(texts, min_size=3, max_size=3))
@settings(max_examples=20, deadline=None)
def test_a_conversation_without_thoughts_is_spelled_as_every_template_renders_it(
    family: str, observations: list[str], replies: list[str]
) -> None:
    frame = FRAMES[family]
    context = grown(frame, None, observations, replies)
    assert spelled(frame, context) == rendered(frame, None, observations, replies)


@pytest.mark.parametrize("family", WITHOUT_DATE)
def test_the_system_message_stands_where_the_template_puts_it_or_before_the_first_observation(family: str) -> None:
    frame = FRAMES[family]
    context = spelled(frame, grown(frame, "Answer.", ["Where?", "Paris."], ["Look."]))
    if family == "gemma2":
        assert context == rendered(frame, None, ["Answer.\n\nWhere?", "Paris."], ["Look."])
    else:
        assert context == rendered(frame, "Answer.", ["Where?", "Paris."], ["Look."])


@pytest.mark.parametrize("family", WITHOUT_DATE)
def test_earlier_thoughts_stay_in_the_context_and_qwen3s_template_alone_drops_them(family: str) -> None:
    frame = FRAMES[family]
    observations, answers = ["Where?", "Paris.", "And?"], ["<answer>a</answer>", "<answer>b</answer>"]
    replies = [THOUGHT + answer for answer in answers]
    context = spelled(frame, grown(frame, None, observations, replies))
    assert all(reply in context for reply in replies)
    whole = rendered(frame, None, observations, replies)
    assert (context == whole) == (family != "qwen3")
    if family == "qwen3":
        assert whole == context.replace(THOUGHT, ""), "and nothing else differs"


@cache
def qwen3(thinking: bool) -> ChatFrame:
    tokenizer = tokenizer_of("qwen3")
    set_switches(tokenizer, {} if thinking else {"enable_thinking": False})
    return ChatFrame(tokenizer)


@pytest.mark.parametrize("system", [None, "Answer."])
@pytest.mark.parametrize("thinking", [True, False])
@given(
    thoughts=st.lists(st.sampled_from(["", "<think>a</think>", "<think>\nb\n</think>\n\n"]), min_size=3, max_size=3),
    answers=st.lists(texts, min_size=3, max_size=3),
)
@settings(max_examples=20, deadline=None)
def test_without_thoughts_a_conversation_is_spelled_as_qwen3s_template_renders_it(
    system: str | None, thinking: bool, thoughts: list[str], answers: list[str]
) -> None:
    frame = qwen3(thinking)
    observations = ["Where?", "Paris.", "And?", "So?"]
    replies = [thought + answer for thought, answer in zip(thoughts, answers, strict=True)]
    context = frame.without_thoughts(system, observations, [frame.reply(reply) for reply in replies])
    assert spelled(frame, context) == rendered(frame, system, observations, replies)


@pytest.mark.parametrize("family", WITHOUT_DATE)
def test_without_thoughts_the_context_is_that_of_replies_which_never_had_any(family: str) -> None:
    frame = FRAMES[family]
    observations, answers = ["Where?", "Paris.", "And?"], ["<answer>a</answer>", "<answer>b</answer>"]
    replies = [frame.reply(THOUGHT + answer) for answer in answers]
    context = frame.without_thoughts("Answer.", observations, replies)
    assert context == grown(frame, "Answer.", observations, answers)


@pytest.mark.parametrize("family", ["llama3", "llama3.1", "gemma2", "gemma3"])
def test_white_space_around_a_message_stays_in_the_context_where_a_template_trims_it(family: str) -> None:
    frame = FRAMES[family]
    context = spelled(frame, grown(frame, None, ["Where?\n", "Paris."], [" Look. "]))
    whole = rendered(frame, None, ["Where?\n", "Paris."], [" Look. "])
    assert context != whole == context.replace("Where?\n", "Where?").replace(" Look. ", "Look.")


@pytest.mark.parametrize("family", WITHOUT_DATE)
def test_a_reply_ends_at_the_templates_token_and_at_the_base_models(family: str) -> None:
    frame, published = FRAMES[family], FAMILIES[family]
    ends = frame.tokenizer.convert_tokens_to_ids([published.end, published.end_of_text])
    assert frame.end_tokens == tuple(ends)


@pytest.mark.parametrize("family", ["llama3", "llama3.1", "gemma2", "gemma3"])
def test_the_token_that_begins_a_text_stands_once_at_the_beginning(family: str) -> None:
    frame = FRAMES[family]
    context = grown(frame, "Answer.", ["Where?", "Paris."], ["Look."])
    assert [place for place, token in enumerate(context) if token == frame.tokenizer.bos_token_id] == [0]


def test_a_template_that_shows_todays_date_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TW-template-shows-date"):
        ChatFrame(tokenizer_of("llama3.2"))
