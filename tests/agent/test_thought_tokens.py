"""The thought's tokens and the action's are found among those that were sampled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from agent_samples import Hill, play_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.agent.formats import FORMATS, Format, ThinkAnswerFormat, thought_tokens
from turnwise.data.trajectory import Turn, TurnKind
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Limits, ScriptedAction

every_format = pytest.mark.parametrize("form", [form() for form in FORMATS.values()], ids=lambda form: form.name)
thoughts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(str.strip).filter(bool)


def sampled(form: Format, frame: ChatFrame, tokens: tuple[int, ...]) -> Turn:
    """A turn as an episode would record it for these sampled tokens."""
    reply = frame.decode(tokens)
    read = form.read(reply, 9)
    (turn,) = play_texts(Hill(limits=Limits(turns=1)), "").turns
    return replace(turn, reply=reply, reply_tokens=tokens, thought=read.thought, invalid=read.invalid)


def resampled(frame: ChatFrame, reply: str, seed: int) -> tuple[int, ...]:
    """The tokens of a text cut at random places, as a policy may sample them and no tokenizer would."""
    choice, tokens, rest = random.Random(seed), [], reply
    while rest:
        length = choice.randint(1, 4)
        tokens += frame.tokenizer(rest[:length], add_special_tokens=False)["input_ids"]
        rest = rest[length:]
    return (*tokens, *frame.end_tokens)


@every_format
@settings(max_examples=50)
@given(thought=thoughts, seed=st.integers(0, 99))
def test_the_parts_are_the_reply_cut_where_its_action_begins(
    form: Format, frame: ChatFrame, thought: str, seed: int
) -> None:
    reply = form.write(ScriptedAction(thought, ("search[up]",)))
    for tokens in (frame.reply(reply), resampled(frame, reply, seed)):
        turn = sampled(form, frame, tokens)
        assert turn.invalid is None
        count = thought_tokens(turn, form, frame)
        border = form.action_begins(reply)
        assert frame.decode(tokens[:count]) in (reply[:border], reply[: border - 1])
        assert len(frame.decode(tokens[: count + 1])) > border


def test_a_token_that_holds_both_parts_is_the_actions(frame: ChatFrame) -> None:
    class Glued(ThinkAnswerFormat):
        def action_begins(self, reply: str) -> int:
            return reply.index(" up") + 1  # in the middle of the token " up"

    tokens = frame.reply("<think> so</think><answer> up</answer>")
    texts = [frame.decode((token,)) for token in tokens]
    assert thought_tokens(sampled(Glued(), frame, tokens), Glued(), frame) == texts.index(" up")


def test_a_character_of_several_tokens_at_the_border_is_whole(frame: ChatFrame) -> None:
    form = ThinkAnswerFormat()

    class After(ThinkAnswerFormat):
        def action_begins(self, reply: str) -> int:
            return reply.index("√") + 1

    tokens = frame.reply(form.write(ScriptedAction("√", ("up",))))
    count = thought_tokens(sampled(form, frame, tokens), After(), frame)
    assert frame.decode(tokens[:count]).endswith("√")


@every_format
def test_a_thought_alone_is_all_thought_and_an_unreadable_reply_has_none(form: Format, frame: ChatFrame) -> None:
    turn = sampled(form, frame, frame.reply("up up up"))
    assert turn.invalid is not None and thought_tokens(turn, form, frame) == 0
    plan = frame.reply(form.write_thought("go up"))
    turn = replace(sampled(form, frame, plan), kind=TurnKind.PLAN, invalid=None)
    assert thought_tokens(turn, form, frame) == len(plan)
