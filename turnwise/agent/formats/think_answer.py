"""The format of RAGEN (arXiv 2504.20073): a thought, then an answer of one or more actions.

What differs: a reply that does not match the form is unreadable and has no action; RAGEN searches it for the nearest
match. Actions beyond the limit make a reply invalid, unless `agent.surplus_actions` is `drop`, as in RAGEN.
"""

from __future__ import annotations

from turnwise.agent.formats.contract import ParsedReply
from turnwise.agent.formats.tags import ThinkFormat, tag_pairs
from turnwise.world import ScriptedAction


class ThinkAnswerFormat(ThinkFormat):
    """`<think>...</think><answer>Left || Down</answer>`.

    An action cannot contain `||`; no world of Turnwise uses it.
    """

    name = "think-answer"
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    separator = "||"
    form = "Reply with <think>a thought</think><answer>an action</answer>; several actions are separated by ||."

    def write(self, decision: ScriptedAction) -> str:
        """`<think> ...</think><answer> Left || Down</answer>`."""
        answer = f" {self.separator} ".join(decision.actions)
        return f"{self.write_thought(decision.thought)}<answer> {answer}</answer>"

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Accepts one thought and one answer; an empty action, or more than `actions_per_turn`, is unreadable."""
        pairs = tag_pairs(reply, self.tags)
        if pairs is None or [name for name, _ in pairs] != ["think", "answer"]:
            return ParsedReply("", (), self.form)
        (_, thought), (_, answer) = pairs
        return self._reading(thought, [action.strip() for action in answer.split(self.separator)], actions_per_turn)
