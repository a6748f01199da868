"""Scripted summaries: the truthful, short summary that a scripted policy writes on request.

A small policy cannot summarise unless it has seen examples, so demonstrations contain truthful summaries of one form:
each action played, with the beginning of the world's answer, oldest first,

    Left -> You moved.; Down -> You fell into a hole.; Right

The answer to the last action is left out: it follows the summary in the new segment and is shown there in full. If not
everything fits, the oldest answers are left out first, then the oldest actions.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agent.formats import Format
from turnwise.agent.modes.steps import fits
from turnwise.data.trajectory import Turn, TurnKind

LONGEST_ANSWER = 60
"""Maximum characters of an observation that a summary quotes."""
NOTHING = "Nothing happened yet."


def recollect(turns: Sequence[Turn], tokens: int, form: Format) -> str:
    """A summary of the turns in at most about `tokens` tokens; at least the last action, however long it is.

    `form` is the format in which the observations were shown.
    """
    acted = [turn for turn in turns if turn.kind is TurnKind.ACT]
    if not acted:
        return NOTHING
    actions = [", ".join(turn.actions) or "a reply that could not be read" for turn in acted]
    answers = [_beginning(form.said(turn.observation)) for turn in acted[1:]]
    answered = [f"{action} -> {answer}" for action, answer in zip(actions, answers, strict=False)] + actions[-1:]
    fewer_answers = ([*actions[:left_out], *answered[left_out:]] for left_out in range(len(acted)))
    fewer_actions = (actions[left_out:] for left_out in range(len(acted)))
    texts = ["; ".join(told) for told in (*fewer_answers, *fewer_actions)]
    return next((text for text in texts if fits(text, tokens)), texts[-1])


def _beginning(answer: str) -> str:
    said = " ".join(answer.split())
    return said if len(said) <= LONGEST_ANSWER else said[:LONGEST_ANSWER].rsplit(" ", 1)[0] + " ..."
