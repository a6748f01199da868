r"""One line, the action after a label: what a small instruction-tuned model writes by itself.

    search: currency of Denmark

The labels are the world's verbs; the label is `action` where an action is any text, and several actions of one reply
are separated by `||`:

    action: Left || Down

A reply holds no thought, so it has about a third of the tokens of one between tags; the thoughts of demonstrations are
left out. A plan, a lesson or a summary is a line of its own kind, `thought: ...`.

What differs from a chat model's habit: capital letters in the label are read, but a second line, or anything before the
label, makes a reply unreadable.
"""

from __future__ import annotations

import re

from turnwise.agent.formats.contract import LINE_ENDS, Format, ParsedReply
from turnwise.errors import ConfigurationError
from turnwise.world import ScriptedAction, World

ACTION, THOUGHT = "action", "thought"
SEPARATOR = "||"


class LineFormat(Format):
    """`search: a query`, `answer: the answer`; `action: Left || Down` where actions are any text."""

    name = "line"
    thought_form = f'Reply with "{THOUGHT}: a thought" and nothing else.'

    def __init__(self, verbs: frozenset[str] | None = None) -> None:
        super().__init__(verbs)
        self._labels = {label.lower(): label for label in sorted(verbs or {ACTION})}
        either = "|".join(map(re.escape, [*self._labels, THOUGHT]))
        self._label = re.compile(rf"({either}):", re.IGNORECASE)
        self._line = re.compile(rf"(^|[{LINE_ENDS}])([^\S{LINE_ENDS}]*)(?=(?:{either}):)", re.IGNORECASE)
        """Matches before a label that begins a line: the line break and the indentation."""

    @property
    def form(self) -> str:
        """The lines that a reply may be."""
        if self.verbs is None:
            return (
                f'Reply with one line and nothing else: "{ACTION}: an action"; several actions are separated by '
                f"{SEPARATOR}."
            )
        lines = " or ".join(f'"{label}: ..."' for label in self._labels.values())
        return f"Reply with one line and nothing else: {lines}."

    def write(self, decision: ScriptedAction) -> str:
        """The line of the decision's actions; its thought is left out."""
        if self.verbs is None:
            return f"{ACTION}: {f' {SEPARATOR} '.join(decision.actions)}"
        (action,) = decision.actions
        verb, _, argument = action.partition("[")
        return f"{verb}: {argument[:-1]}"

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Accepts one line with a label of an action; with verbs it is one action, whatever `actions_per_turn` is."""
        label, text = self._labelled(reply)
        if label not in self._labels or "\n" in text:
            return ParsedReply("", (), self.form)
        if self.verbs is not None:
            return ParsedReply("", (f"{self._labels[label]}[{text}]",))
        return self._reading("", [action.strip() for action in text.split(SEPARATOR)], actions_per_turn)

    def write_thought(self, thought: str) -> str:
        """`thought: ...`."""
        return f"{THOUGHT}: {self.escape(thought)}"

    def read_thought(self, reply: str) -> ParsedReply:
        """Accepts a thought, of one or more lines of which only the first has a label."""
        label, text = self._labelled(reply)
        if label != THOUGHT or self._line.search(text):
            return ParsedReply("", (), self.thought_form)
        return self._thought_alone(text)

    def action_begins(self, reply: str) -> int:
        """At the beginning: no thought comes before the action."""
        return 0

    def escape(self, text: str) -> str:
        r"""Puts a backslash before each label that begins a line."""
        return self._line.sub(r"\1\2\\", text)

    def require_expressible(self, world: World) -> None:
        """Raise ConfigurationError where a verb of the world is the label of a thought."""
        if THOUGHT in self._labels:
            raise ConfigurationError(
                f"agent.format 'line' writes thoughts as {THOUGHT}: ...; the world {world.name!r} has an action of "
                "that name: choose another format",
                "TW-format-loses-actions",
            )

    def _labelled(self, reply: str) -> tuple[str, str]:
        """The label with which a reply begins, in small letters, and the text after it; no label: an empty one."""
        label = self._label.match(stripped := reply.strip())
        return (label[1].lower(), stripped[label.end() :].strip()) if label else ("", stripped)
