"""Tokenize demonstrations: texts of scripted policies, in the contexts that an episode would give them.

Scripted policies run before a tokenizer exists. Only token counts decide when a window holds fewer turns, when a
summary must come early, and where an episode exceeds its budget. So the context policy runs again over the recorded
texts, with the same code that episodes use. Recorded summaries are rewritten for the turns that they now replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from turnwise.agent.context import Ask, Context
from turnwise.agent.formats import Format
from turnwise.agent.scripted import scripted_summary
from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.policy.tokenizer import ChatFrame


def tokenized(
    trajectory: Trajectory, frame: ChatFrame, form: Format, context: Context, longest: Mapping[TurnKind, int]
) -> Trajectory:
    """The demonstration with tokens, cut before the first turn at which a reply of maximum length might not fit.

    `context` must be fresh; `longest` is the maximum reply length in tokens for each kind of turn. Log-probabilities
    are filled with 0, since nothing was sampled.
    """
    turns: list[Turn] = []

    def say(turn: Turn, ask: Ask) -> bool:
        message = context.ask(turn.observation, ask)
        if message is None:
            return False
        reply = frame.reply(turn.reply)
        turns.append(
            replace(
                turn,
                observation_tokens=message.tokens,
                opens_segment=message.opens_segment,
                reply_tokens=reply,
                log_probabilities=(0.0,) * len(reply),
            )
        )
        note = "" if turn.kind is TurnKind.ACT else form.escape(turn.thought)
        context.replied(reply, note, called=bool(turn.actions))
        return True

    attempt, last_said = 0, ""
    for turn in trajectory.turns:
        if turn.kind is TurnKind.SUMMARY:
            continue
        if turn.attempt != attempt:
            context.begin_again()
            attempt = turn.attempt
        last_said = turn.observation or last_said
        ask = Ask(turn.kind, longest[turn.kind], turn.asked)
        if summary := context.summary_before(turn.observation, ask):
            of_attempt = [each for each in turns if each.attempt == attempt]
            say(_summary(scripted_summary(of_attempt, summary.reply_tokens, form), form, summary, attempt), summary)
            turn = replace(turn, observation=turn.observation or last_said)
        if not say(turn, ask):
            break
    return replace(trajectory, turns=tuple(turns))


def _summary(thought: str, form: Format, ask: Ask, attempt: int) -> Turn:
    return Turn(
        observation="",
        observation_tokens=(),
        reply=form.write_thought(thought),
        reply_tokens=(),
        log_probabilities=(),
        thought=thought,
        actions=(),
        invalid=None,
        effective=False,
        rewards={},
        trained=ask.trained,
        kind=ask.kind,
        asked=ask.words,
        attempt=attempt,
    )
