"""Formats: how a reply is written, how it is read, and what an unreadable one is told.

A format knows tags, a world knows actions, and neither knows the other: `read` turns a reply into actions of the
world's grammar, `write` does the opposite for demonstrations, and `read(write(decision))` gives the decision back.
Reading is linear in the length of the reply, never raises, and never guesses: a reply has the form or it has not.

What is written has a space after an opening tag: a word then has the token that it has in the middle of an observation,
so that copying it is copying a token. What is read needs none.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnwise.errors import ConfigurationError
from turnwise.world import Decision, World


@dataclass(frozen=True)
class Reading:
    """What was read from a reply: the actions, or (`invalid`) why there are none."""

    thought: str
    actions: tuple[str, ...]
    invalid: str | None = None


class Format(ABC):
    """A way of writing a thought and one or more actions as text."""

    name: ClassVar[str]
    tags: ClassVar[tuple[str, ...]]
    """The literal tags of the format: a tokenizer that is trained here keeps each as one token."""

    @property
    @abstractmethod
    def form(self) -> str:
        """The form of a reply in one sentence: part of the instruction, and what an unreadable reply is told."""

    @abstractmethod
    def write(self, decision: Decision) -> str:
        """The reply that a competent writer of this format would make of a decision."""

    @abstractmethod
    def read(self, reply: str, actions_per_turn: int) -> Reading:
        """The thought and the actions of a reply, or why it cannot be read. Never raises."""

    @abstractmethod
    def require_expressible(self, world: World) -> None:
        """Raise ConfigurationError when this format cannot express the world's actions."""

    def instruction(self, world: World) -> str:
        """The whole instruction for a policy that has never seen this world."""
        return f"{world.instruction}\n{world.grammar}\n{self.form}"


def split_at_tags(reply: str, tags: Sequence[str]) -> list[str]:
    """The reply cut at every literal tag, the tags included: text, tag, text, tag, ..., text."""
    return re.split("(" + "|".join(re.escape(tag) for tag in tags) + ")", reply)


def _spans(reply: str, tags: Sequence[str]) -> list[tuple[str, str]] | None:
    """`[(name, inner text), ...]` of a reply that is nothing but well-formed, unnested tag pairs, else None."""
    pieces = split_at_tags(reply, tags)
    texts, found = pieces[0::2], pieces[1::2]
    if len(found) % 2 or any(gap.strip() for gap in texts[0::2]):
        return None
    spans = []
    for opening, inner, closing in zip(found[0::2], texts[1::2], found[1::2], strict=True):
        if opening.startswith("</") or closing != f"</{opening[1:]}":
            return None
        spans.append((opening[1:-1], inner.strip()))
    return spans


class SearchFormat(Format):
    """MT-GRPO's form: a thought, then a search or the answer. Actions are `search[...]` and `answer[...]`."""

    name = "search"
    tags = ("<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>")
    form = (
        "Reply with <think>a thought</think> and then either <search>a query</search> or <answer>the answer</answer>."
    )

    def write(self, decision: Decision) -> str:
        """`<think> ...</think><search> ...</search>`, from a decision with the one action `search[...]`."""
        (action,) = decision.actions
        verb, _, argument = action.partition("[")
        return f"<think> {decision.thought}</think><{verb}> {argument[:-1]}</{verb}>"

    def read(self, reply: str, actions_per_turn: int) -> Reading:
        """One thought, one action: `actions_per_turn` above 1 changes nothing, since the form has room for one."""
        spans = _spans(reply, self.tags)
        if spans is None or [name for name, _ in spans][:1] != ["think"] or len(spans) != 2 or spans[1][0] == "think":
            return Reading("", (), self.form)
        (_, thought), (verb, argument) = spans
        return Reading(thought, (f"{verb}[{argument}]",))

    def require_expressible(self, world: World) -> None:
        """Only worlds whose actions are exactly `search[...]` and `answer[...]`."""
        if world.verbs != frozenset({"search", "answer"}):
            raise ConfigurationError(
                f"agent.format 'search' writes the actions search[...] and answer[...]; the world {world.name!r} has "
                f"{'the verbs ' + ', '.join(sorted(world.verbs)) if world.verbs else 'another grammar'}; "
                "set agent.format to 'think-answer'"
            )


class ThinkAnswerFormat(Format):
    """RAGEN's form: a thought, then an answer of one or more actions separated by `||`. Expresses any world."""

    name = "think-answer"
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    separator = "||"
    form = "Reply with <think>a thought</think><answer>an action</answer>; several actions are separated by ||."

    def write(self, decision: Decision) -> str:
        """`<think> ...</think><answer> Left || Down</answer>`."""
        answer = f" {self.separator} ".join(decision.actions)
        return f"<think> {decision.thought}</think><answer> {answer}</answer>"

    def read(self, reply: str, actions_per_turn: int) -> Reading:
        """An empty action, or more than `actions_per_turn` of them, makes the reply unreadable."""
        spans = _spans(reply, self.tags)
        if spans is None or [name for name, _ in spans] != ["think", "answer"]:
            return Reading("", (), self.form)
        (_, thought), (_, answer) = spans
        actions = tuple(action.strip() for action in answer.split(self.separator))
        if not all(actions):
            return Reading(thought, (), f"An action is empty. {self.form}")
        if len(actions) > actions_per_turn:
            return Reading(thought, (), f"At most {actions_per_turn} actions a turn; the reply has {len(actions)}.")
        return Reading(thought, actions)

    def require_expressible(self, world: World) -> None:
        """Any text is an action; only `||` cannot be part of one, and no world of ours uses it."""


FORMATS: dict[str, type[Format]] = {form.name: form for form in (SearchFormat, ThinkAnswerFormat)}


def make_format(name: str) -> Format:
    """A format by name. Raises ConfigurationError for an unknown one."""
    if name not in FORMATS:
        raise ConfigurationError(f"agent.format must be one of {', '.join(sorted(FORMATS))}; found {name!r}")
    return FORMATS[name]()
