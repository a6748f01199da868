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
    texts, borders = pieces[0::2], pieces[1::2]
    if len(borders) % 2 or any(gap.strip() for gap in texts[0::2]):
        return None
    pairs = []
    for opening, inner, closing in zip(borders[0::2], texts[1::2], borders[1::2], strict=True):
        if opening.startswith("</") or closing != f"</{opening[1:]}":
            return None
        pairs.append((opening[1:-1], inner.strip()))
    return pairs


def tag_use(reply: str, tags: Sequence[str]) -> float:
    """How well a reply uses the tags of its format, from 0 to 1: MT-GRPO's reward (arXiv 2505.11821).

    A pair of tags of which the reply has one counts for both: with n the number of times that a tag is there,
    1 - |n - 1|, which is 1 only for a tag that is there once. The mean over these tags, and at least 0; 0 for a reply
    without tags. Their order is not looked at. Differs from the release: it bounds the mean over an episode's replies
    instead of each.
    """
    counts = [(reply.count(opening), reply.count(f"</{opening[1:]}")) for opening in tags if opening[1] != "/"]
    used = [1.0 - abs(count - 1) for pair in counts if any(pair) for count in pair]
    return max(0.0, sum(used) / len(used)) if used else 0.0


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
