"""The parts of a reply in tokens: how many of the sampled tokens belong to the thought, and where the action begins.

The boundary is known as a character index. Its token is found by bisection, decoding prefixes of the reply's tokens:
nothing is encoded again, because that might give other tokens than the sampled ones. A token with characters of both
parts belongs to the action, which begins in it.
"""

from __future__ import annotations

from bisect import bisect_right

from turnwise.agent.context import ConversationFrame
from turnwise.agent.formats import Format
from turnwise.data.trajectory import Turn, TurnKind


def thought_tokens(turn: Turn, form: Format, frame: ConversationFrame) -> int:
    """The number of leading tokens of a reply that belong to its thought.

    All tokens of a reply that does not act (a plan, a lesson, a summary); 0 for a reply that could not be read, since
    it has no parts. `form` is the format in which the reply was parsed.
    """
    if turn.invalid is not None:
        return 0
    if turn.kind is not TurnKind.ACT:
        return len(turn.reply_tokens)
    border = form.action_begins(turn.reply)

    def characters(count: int) -> int:
        return len(frame.decode(turn.reply_tokens[:count]))

    return bisect_right(range(len(turn.reply_tokens) + 1), border, key=characters) - 1
