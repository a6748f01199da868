"""Tags in a text: split at tags, parse tag pairs, escape quoted tags; and the base of formats with `<think>` tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from turnwise.agent.formats.contract import Format, ParsedReply


def split_at_tags(reply: str, tags: Sequence[str]) -> list[str]:
    """The reply cut at every literal tag, the tags included: text, tag, text, tag, ..., text."""
    return _border(tuple(tags)).split(reply) if tags else [reply]


@cache
def _border(tags: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the tags, as a group, so that a text split at it keeps them."""
    return re.compile("(" + "|".join(map(re.escape, tags)) + ")")


def escape_tags(text: str, tags: Sequence[str]) -> str:
    r"""The text with a backslash in every literal tag: `<\answer>`, `<\/answer>`."""
    pieces = split_at_tags(text, tags)
    pieces[1::2] = [f"<\\{tag[1:]}" for tag in pieces[1::2]]
    return "".join(pieces)


def tag_pairs(reply: str, tags: Sequence[str]) -> list[tuple[str, str]] | None:
    """`[(name, inner text), ...]` of a reply that is nothing but well-formed, unnested tag pairs, else None."""
    pieces = split_at_tags(reply, tags)
    texts, found = pieces[0::2], pieces[1::2]
    if len(found) % 2 or any(gap.strip() for gap in texts[0::2]):
        return None
    pairs = []
    for opening, inner, closing in zip(found[0::2], texts[1::2], found[1::2], strict=True):
        if opening.startswith("</") or closing != f"</{opening[1:]}":
            return None
        pairs.append((opening[1:-1], inner.strip()))
    return pairs


class ThinkFormat(Format):
    """Base of formats with the thought between `<think>` and `</think>`, before the action's tag."""

    thought_form = "Reply with <think>a thought</think> and nothing else."

    def write_thought(self, thought: str) -> str:
        """`<think> ...</think>`."""
        return f"<think> {self.escape(thought)}</think>"

    def read_thought(self, reply: str) -> ParsedReply:
        """Accepts one thought and nothing else."""
        pairs = tag_pairs(reply, self.tags)
        if pairs is None or [name for name, _ in pairs] != ["think"]:
            return ParsedReply("", (), self.thought_form)
        return self._thought_alone(pairs[0][1])

    def action_begins(self, reply: str) -> int:
        """Directly after the thought's closing tag."""
        return reply.index("</think>") + len("</think>")

    def escape(self, text: str) -> str:
        """Puts a backslash into each tag of this format."""
        return escape_tags(text, self.tags)
