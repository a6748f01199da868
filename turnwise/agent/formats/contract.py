r"""What a format is: how a world is worded for a policy, and how a policy's reply is written and read.

A **turn** is one reply of the policy: everything from the assistant's head to the token with which the chat template
ends an assistant's message. That token is sampled like the others, and ends a reply in every format. No format has stop
strings: they would be searched in decoded text, and their end need not be the end of a token, so that a reply's tokens
would no longer be those that were sampled. What a policy writes after its action (an observation of its own invention,
say) makes the reply unreadable, which it is told.

A format knows tags and labels, a world knows actions: `read` turns a reply into actions of the world's grammar, `write`
does the opposite for demonstrations, and `read(write(decision))` gives the decision back, its thought escaped. Reading
is linear in the length of the reply, never raises, and never guesses: a reply has the form or it has not.

**A world's text is never the policy's.** Only the tokens that the policy sampled are read. So that a policy does not
take an observation for a reply either, what a format's replies are recognised by is escaped with a backslash in each
observation (`<\answer>`, `\Action:`); control tokens of the chat template cannot be spelled at all, see
`turnwise.policy.tokenizer`.

What is written has a space after an opening tag: a word then has the token that it has in the middle of an observation,
so that copying it is copying a token. What is read needs none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnwise.errors import ConfigurationError
from turnwise.world import ScriptedAction, World


@dataclass(frozen=True)
class ParsedReply:
    """What was read from a reply: the actions, or (`invalid`) why there are none.

    A reply that is read as a thought alone has no actions and is not invalid.
    """

    thought: str
    actions: tuple[str, ...]
    invalid: str | None = None


class Format(ABC):
    """A way of writing a thought and one or more actions as text, for worlds with the given verbs.

    `verbs` are `turnwise.world.World.verbs`: None where actions are any text.
    """

    name: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    """The literal tags of the format: a tokenizer that is trained here keeps each as one token."""
    thought_form: ClassVar[str]
    """The form of a reply that is a thought alone (a plan, a lesson, a summary), in one sentence."""

    def __init__(self, verbs: frozenset[str] | None = None) -> None:
        self.verbs = verbs

    @property
    @abstractmethod
    def form(self) -> str:
        """The form of a reply in one sentence: part of the instruction, and what an unreadable reply is told."""

    @abstractmethod
    def write(self, decision: ScriptedAction) -> str:
        """The reply that a competent writer of this format would make of a decision."""

    @abstractmethod
    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """The thought and the actions of a reply, or why it cannot be read. Never raises."""

    @abstractmethod
    def write_thought(self, thought: str) -> str:
        """A reply that is a thought alone. It must not be empty."""

    @abstractmethod
    def read_thought(self, reply: str) -> ParsedReply:
        """The thought of a reply that has no action, or why it is not such a reply. Never raises."""

    @abstractmethod
    def action_begins(self, reply: str) -> int:
        """The index of the character at which the action begins in a reply that `read` could read."""

    @abstractmethod
    def escape(self, text: str) -> str:
        """A text in which nothing can be taken for a part of a reply. A text without tags or labels stays as it is."""

    def require_expressible(self, world: World) -> None:  # noqa: B027  (most formats can express any text)
        """Raise ConfigurationError when this format cannot express the world's actions."""

    def instruction(self, world: World) -> str:
        """The whole instruction for a policy that has never seen this world."""
        return f"{world.instruction}\n{world.grammar}\n{self.form}"

    def opening(self, text: str) -> str:
        """The first observation of an episode, which states the task, as the policy is shown it."""
        return self.escape(text)

    def observation(self, text: str) -> str:
        """A world's answer to an action, as the policy is shown it."""
        return self.escape(text)

    def said(self, shown: str) -> str:
        """The world's words in an observation as it was shown: what `observation` puts around them is left out."""
        return shown

    def demonstrate(self, decision: ScriptedAction) -> str:
        """`write`, for a reply that a policy shall learn from.

        Raises ConfigurationError when the actions could not be read from it again.
        """
        reply = self.write(decision)
        if self.read(reply, len(decision.actions)).actions != decision.actions:
            raise ConfigurationError(
                f"agent.format {self.name!r} must be able to write every action of the world; what it writes of "
                f"{list(decision.actions)} is read as something else: choose another format"
            )
        return reply

    def _reading(self, thought: str, actions: Sequence[str], actions_per_turn: int) -> ParsedReply:
        """A well-formed reply: still unreadable with an empty action, or more than `actions_per_turn` of them."""
        if not all(actions):
            return ParsedReply(thought, (), f"An action is empty. {self.form}")
        if len(actions) > actions_per_turn:
            return ParsedReply(thought, (), f"At most {actions_per_turn} actions a turn; the reply has {len(actions)}.")
        return ParsedReply(thought, tuple(actions))

    def _thought_alone(self, thought: str) -> ParsedReply:
        """A well-formed thought: still unreadable when it is empty."""
        return (
            ParsedReply(thought, ()) if thought else ParsedReply("", (), f"The thought is empty. {self.thought_form}")
        )
