"""The parts of a reply in tokens: where the thought ends and the action begins, among the tokens that were sampled.

The place is known in the text, and its token is found by decoding the reply's first n tokens for one n after another:
nothing is encoded again, since another division into tokens than the one that was sampled might come of it. A token
that holds characters of both parts belongs to the action, which begins in it.
"""

from __future__ import annotations

from bisect import bisect_right

from turnwise.agent.context import ConversationFrame
from turnwise.agent.formats import Format
from turnwise.data.trajectory import Turn, TurnKind


def thought_tokens(turn: Turn, form: Format, frame: ConversationFrame) -> int:
    """How many of a reply's tokens, from its first on, are its thought's.

    All of a reply that does not act (a plan, a lesson, a summary), and none of one that could not be read, since it has
    no parts. `form` is the format that the reply was read in.
    """
    if turn.invalid is not None:
        return 0
    if turn.kind is not TurnKind.ACT:
        return len(turn.reply_tokens)
    border = form.action_begins(turn.reply)

    def characters(count: int) -> int:
        return len(frame.decode(turn.reply_tokens[:count]))

    return bisect_right(range(len(turn.reply_tokens) + 1), border, key=characters) - 1
