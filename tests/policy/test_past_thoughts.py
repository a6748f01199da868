"""A reply without its thought is the tokens that were sampled after it, as far as tokens begin there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.policy.tokenizer import ChatFrame, train_tokenizer, without_thought

TEXTS = ["<think> up it goes</think>\n\n<answer> up</answer>"] * 20
FRAME = ChatFrame(train_tokenizer(TEXTS, 330, ["<think>", "</think>", "<answer>", "</answer>"]))
PLAIN = ChatFrame(train_tokenizer(TEXTS, 400, []))
"""Without tokens for tags: a thought may end inside a token."""
texts = st.text(st.sampled_from("up </think>\né😀<answer>"), max_size=12)


def shown(text: str) -> str:
    """What Qwen3's template shows of an earlier reply."""
    return text.split("</think>")[-1].lstrip("\n") if "</think>" in text else text


def resampled(frame: ChatFrame, text: str, seed: int) -> tuple[int, ...]:
    """The tokens of a text cut at random places, as a policy may sample them and no tokenizer would."""
    choice, tokens, rest = random.Random(seed), [], text
    while rest:
        length = choice.randint(1, 4)
        tokens += frame.reply(rest[:length])[:-1]
        rest = rest[length:]
    return tuple(tokens)


@pytest.mark.parametrize("frame", [FRAME, PLAIN])
@pytest.mark.parametrize("is_cut_off", [False, True])
@given(thought=texts, answer=texts, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_what_is_left_spells_what_the_template_shows(
    frame: ChatFrame, is_cut_off: bool, thought: str, answer: str, seed: int
) -> None:
    text = f"<think>{thought}</think>{answer}"
    end = () if is_cut_off else (frame.end_token,)
    reply = (*resampled(frame, text, seed), *end)
    left = without_thought(reply, frame)
    assert frame.decode(left) == shown(text)
    assert (left[-1:] == end) if end else (frame.end_token not in left)


@given(thought=texts, answer=texts, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_where_the_tag_is_a_token_and_line_breaks_are_too_what_was_sampled_is_kept(
    thought: str, answer: str, seed: int
) -> None:
    before, after = resampled(FRAME, thought, seed), resampled(FRAME, answer.replace("</think>", ""), seed + 1)
    tag = FRAME.reply("</think>")[:-1]
    assert len(tag) == 1
    reply = (*before, *tag, *after, FRAME.end_token)
    left = without_thought(reply, FRAME)
    if not FRAME.decode(after).startswith("\n"):
        assert left == (*after, FRAME.end_token)


def test_a_reply_without_a_thought_stays_as_it_was_sampled() -> None:
    for text in ("<answer> up</answer>", "<think> up", ""):
        reply = resampled(FRAME, text, 3)
        assert without_thought(reply, FRAME) == reply


def test_the_end_token_that_was_sampled_stays() -> None:
    pad = FRAME.tokenizer.convert_tokens_to_ids("<|pad|>")
    frame = ChatFrame(PLAIN.tokenizer, [pad])
    reply = (*frame.reply("<think>a</think>b")[:-1], pad)
    assert without_thought(reply, frame)[-1] == pad
