r"""The interface of a reply format: how observations are shown to a policy, and how replies are written and parsed.

A **turn** is one reply of the policy: everything from the assistant header to the token with which the chat template
ends an assistant message. That token is sampled like the others, and ends a reply in every format. No format has stop
strings: they would be searched for in decoded text and need not end where a token ends, so a reply's tokens would no
longer be the sampled ones. Text after the action (an observation that the policy invents, say) makes the reply
unreadable, and the answer to the policy says so.

A format knows tags and labels, a world knows actions. `read` parses a reply into actions of the world's grammar;
`write` is the inverse, for demonstrations: `read(write(decision))` returns the decision, with its thought escaped.
Parsing takes time linear in the length of the reply, never raises, and never guesses: a reply that does not match the
form exactly is unreadable.

**A world's text is never parsed as a reply.** Only tokens that the policy sampled are parsed. To keep the policy from
mistaking an observation for a reply, the format's tags and labels are escaped with a backslash in each observation
(`<\answer>`, `\Action:`). Control tokens of the chat template cannot be spelled in text at all, see
`turnwise.policy.tokenizer`.

`write` puts a space after an opening tag: a word then has the same token as in the middle of an observation, so the
policy can copy the token. `read` does not need the space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnwise.agent.context import ConversationFrame
from turnwise.data.arrays import Ragged
from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.errors import ConfigurationError
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.world import ScriptedAction, World

LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""Every character that some reader treats as a line break (as `str.splitlines` does), for a set in a pattern."""


@dataclass(frozen=True)
class ParsedReply:
    """A parsed reply: the thought and the actions, or in `invalid` the reason why there are no actions.

    A reply that is parsed as a thought alone has no actions and is not invalid.
    """

    thought: str
    actions: tuple[str, ...]
    invalid: str | None = None


class Format(ABC):
    """A way of writing a thought and one or more actions as text, for a world with the given verbs.

    `verbs` is `turnwise.world.World.verbs`; None where an action may be any text.
    """

    name: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    """The literal tags of the format; a tokenizer trained by Turnwise keeps each as one token."""
    thought_form: ClassVar[str]
    """One sentence that describes a reply that is a thought alone (a plan, a lesson, a summary)."""

    def __init__(self, verbs: frozenset[str] | None = None) -> None:
        self.verbs = verbs

    @property
    @abstractmethod
    def form(self) -> str:
        """One sentence that describes a reply: part of the instruction, and the answer to an unreadable reply."""

    @abstractmethod
    def write(self, decision: ScriptedAction) -> str:
        """A well-formed reply with the decision's thought and actions."""

    @abstractmethod
    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Parse a reply into its thought and actions, or the reason why it is unreadable. Never raises."""

    @abstractmethod
    def write_thought(self, thought: str) -> str:
        """A well-formed reply that is a thought alone. The thought must not be empty."""

    @abstractmethod
    def read_thought(self, reply: str) -> ParsedReply:
        """Parse a reply that is a thought alone, or give the reason why it is not one. Never raises."""

    @abstractmethod
    def action_begins(self, reply: str) -> int:
        """The character index at which the action begins, in a reply that `read` accepts."""

    @abstractmethod
    def escape(self, text: str) -> str:
        """The text with this format's tags or labels escaped; a text without any is returned unchanged."""

    def require_expressible(self, world: World) -> None:  # noqa: B027  (most formats can express any text)
        """Raise ConfigurationError when this format cannot express the world's actions."""

    @property
    def functions(self) -> DeclaredFunctions | None:
        """The functions that a chat template is to show; None for a format that says all in its instruction."""
        return None

    def instruction(self, world: World) -> str:
        """The complete instruction for a policy that has never seen this world."""
        return f"{world.instruction}\n{world.grammar}\n{self.form}"

    def opening(self, text: str) -> str:
        """The first observation of an episode, which states the task, as shown to the policy."""
        return self.escape(text)

    def observation(self, text: str) -> str:
        """A world's answer to an action, as shown to the policy."""
        return self.escape(text)

    def said(self, shown: str) -> str:
        """The world's text in a shown observation, without what `observation` puts around it."""
        return shown

    def demonstrate(self, decision: ScriptedAction) -> str:
        """`write` for training data, checked by parsing the reply again.

        Raises ConfigurationError if the parsed actions are not those of the decision.
        """
        reply = self.write(decision)
        if self.read(reply, len(decision.actions)).actions != decision.actions:
            raise ConfigurationError(
                f"agent.format {self.name!r} must be able to write every action of the world; what it writes of "
                f"{list(decision.actions)} is read as something else: choose another format",
                "TW-format-loses-actions",
            )
        return reply

    def _reading(self, thought: str, actions: Sequence[str], actions_per_turn: int) -> ParsedReply:
        """The result for a well-formed reply; unreadable if an action is empty or there are too many of them."""
        if not all(actions):
            return ParsedReply(thought, (), f"An action is empty. {self.form}")
        if len(actions) > actions_per_turn:
            return ParsedReply(thought, (), f"At most {actions_per_turn} actions a turn; the reply has {len(actions)}.")
        return ParsedReply(thought, tuple(actions))

    def _thought_alone(self, thought: str) -> ParsedReply:
        """The result for a well-formed thought; unreadable if it is empty."""
        return (
            ParsedReply(thought, ()) if thought else ParsedReply("", (), f"The thought is empty. {self.thought_form}")
        )


def thought_tokens(turn: Turn, form: Format, frame: ConversationFrame) -> int:
    """The number of leading tokens of a reply that belong to its thought.

    All tokens of a reply that does not act (a plan, a lesson, a summary); 0 for a reply that could not be read, since
    it has no parts. A token with characters of both parts belongs to the action, which begins in it. `form` is the
    format in which the reply was parsed.
    """
    if turn.invalid is not None:
        return 0
    if turn.kind is not TurnKind.ACT:
        return len(turn.reply_tokens)
    # The border is a character. Its token is found by bisection, decoding prefixes of the reply's tokens: to encode the
    # text again might give other tokens than the sampled ones.
    border = form.action_begins(turn.reply)

    def characters(count: int) -> int:
        return len(frame.decode(turn.reply_tokens[:count]))

    return bisect_right(range(len(turn.reply_tokens) + 1), border, key=characters) - 1


def thought_lengths(
    episodes: Sequence[Trajectory], indices: Sequence[int], form: Format, frame: ConversationFrame
) -> Ragged:
    """The number of thought tokens in each reply, by trajectory and turn, of the episodes with these indices."""
    selected = (episodes[index] for index in indices)
    return Ragged.of(([thought_tokens(turn, form, frame) for turn in each.turns] for each in selected), np.int64)
