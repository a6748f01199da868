"""The format of ReAct (Yao et al. 2023, arXiv 2210.03629): a thought and an action, each after its label.

    Thought: the key is behind the door
    Action: open the door

What differs from the paper: labels are not numbered; an observation is a message of its own instead of a line in one
long text, so a reply in which the policy goes on to invent an observation is unreadable instead of cut before it.
"""

from __future__ import annotations

import re

from turnwise.agent.formats.contract import LINE_ENDS, Format, ParsedReply
from turnwise.world import ScriptedAction

THOUGHT, ACTION, OBSERVATION = "Thought:", "Action:", "Observation:"

_LABEL = re.compile(rf"(^|[{LINE_ENDS}])([^\S{LINE_ENDS}]*)(?=(?:Thought|Action|Observation):)")
"""Matches before a label that begins a line: the line break and the indentation."""


class ReactFormat(Format):
    """Lines that begin with `Thought:` and `Action:`. An action is one line; a thought may have several."""

    name = "react"
    form = (
        'Reply with "Thought: a thought" and, on the next line, "Action: an action"; several actions take such a line '
        "each. Nothing follows the action."
    )
    thought_form = 'Reply with "Thought: a thought" and nothing else.'

    def write(self, decision: ScriptedAction) -> str:
        r"""`Thought: ...\nAction: ...`."""
        return "\n".join([self.write_thought(decision.thought), *(f"{ACTION} {each}" for each in decision.actions)])

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Accepts a thought followed only by lines with one action each."""
        lines = [line for line in reply.strip().split("\n") if line.strip()]
        first = next((place for place, line in enumerate(lines) if line.startswith(ACTION)), len(lines))
        thought = _thought(lines[:first])
        if thought is None or first == len(lines) or not all(line.startswith(ACTION) for line in lines[first:]):
            return ParsedReply("", (), self.form)
        return self._reading(thought, [line.removeprefix(ACTION).strip() for line in lines[first:]], actions_per_turn)

    def write_thought(self, thought: str) -> str:
        """`Thought: ...`."""
        return f"{THOUGHT} {self.escape(thought)}"

    def read_thought(self, reply: str) -> ParsedReply:
        """Accepts a thought and nothing else."""
        thought = _thought(reply.strip().split("\n"))
        return ParsedReply("", (), self.thought_form) if thought is None else self._thought_alone(thought)

    def action_begins(self, reply: str) -> int:
        """At the label of the first action."""
        return reply.index(f"\n{ACTION}") + 1

    def escape(self, text: str) -> str:
        r"""Puts a backslash before each label that begins a line."""
        return _LABEL.sub(r"\1\2\\", text)

    def observation(self, text: str) -> str:
        """`Observation: ...`."""
        return f"{OBSERVATION} {self.escape(text)}"

    def said(self, shown: str) -> str:
        """The text without the label `Observation:`."""
        return shown.removeprefix(f"{OBSERVATION} ")


def _thought(lines: list[str]) -> str | None:
    """The thought's text if the first line has the label `Thought:` and no later line has a label, else None."""
    labelled = [line.startswith((THOUGHT, ACTION, OBSERVATION)) for line in lines]
    if not lines or not lines[0].startswith(THOUGHT) or any(labelled[1:]):
        return None
    return "\n".join(lines).removeprefix(THOUGHT).strip()
