r"""Earlier replies without their thoughts, as Qwen3's chat template shows them.

    <think>It is left of me.</think>\n\n<answer>Left</answer>    is shown later as    <answer>Left</answer>

Everything up to the last `</think>` goes, with the line breaks after it. A reply without that tag stays whole.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

THOUGHT_END = "</think>"


class Speller(Protocol):
    """Turns a reply's tokens into text and back; implemented by `turnwise.policy.tokenizer.ChatFrame`."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens at which a reply ends."""

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of a reply, without its end token."""

    def reply(self, text: str) -> tuple[int, ...]:
        """The tokens of a text as a reply, with an end token."""


def without_thought(reply: tuple[int, ...], speller: Speller) -> tuple[int, ...]:
    """The tokens of a reply after its thought: those that were sampled, where one of them begins there.

    Where the thought ends inside a token, the rest of the text is encoded again. The end token stays as it was sampled.
    """
    text = speller.decode(reply)
    _, tag, rest = text.rpartition(THOUGHT_END)
    if not tag:
        return reply
    said = rest.lstrip("\n")

    def characters(count: int) -> int:
        return len(speller.decode(reply[:count]))

    dropped = bisect_left(range(len(reply)), len(text) - len(said), key=characters)
    if speller.decode(reply[dropped:]) == said:
        return reply[dropped:]
    end = reply[-1:] if reply[-1] in speller.end_tokens else ()
    return (*speller.reply(said)[:-1], *end)
