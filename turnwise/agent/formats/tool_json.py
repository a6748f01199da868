"""Function calls in JSON, as the chat models Qwen2.5 and Qwen3 write them, who adopted the form from Hermes.

    The key is behind the door.
    <tool_call>
    {"name": "act", "arguments": {"action": " open the door"}}
    </tool_call>

A world whose actions are `verb[text]` has a function for each verb, with the argument `text`; any other world has the
single function `act`, with the argument `action`. The instruction lists the signatures as Qwen's chat template does.

What differs from a tool message in Qwen's template: an observation is a user message between `<tool_response>` tags, as
that template renders it, so templates without tool support work too; and all calls of one reply share one observation.
JSON with a duplicate key, or with a string that is not valid text (half of a surrogate pair), is not a call.
"""

from __future__ import annotations

import json
from typing import Any

from turnwise.agent.formats.contract import Format, ParsedReply
from turnwise.agent.formats.tags import escape_tags, split_at_tags
from turnwise.policy.declared_functions import signature
from turnwise.world import ScriptedAction, World

CALL, CALL_END = "<tool_call>", "</tool_call>"
RESPONSE, RESPONSE_END = "<tool_response>", "</tool_response>"
ACT = "act"
"""The single function of a world whose actions may be any text."""


class ToolJsonFormat(Format):
    """Free text, which is the thought, then one or more calls."""

    name = "tool-json"
    tags = (CALL, CALL_END, RESPONSE, RESPONSE_END)
    thought_form = f"Reply with a thought in plain text, without {CALL}."

    @property
    def form(self) -> str:
        """A sentence that asks for a thought and a call of one of the functions."""
        name, value = (ACT, "an action") if self.verbs is None else ("NAME", "TEXT")
        call = json.dumps({"name": name, "arguments": {self._argument: value}})
        names = "" if self.verbs is None else f", where NAME is one of {', '.join(self._functions)}"
        return f"Reply with a thought and then {CALL}{call}{CALL_END}{names}; several actions are several such calls."

    def instruction(self, world: World) -> str:
        """The base instruction, with the functions' signatures between the world's grammar and the form."""
        signatures = "\n".join(json.dumps(signature(name, self._argument)) for name in self._functions)
        return f"{world.instruction}\n{world.grammar}\n<tools>\n{signatures}\n</tools>\n{self.form}"

    def write(self, decision: ScriptedAction) -> str:
        """The thought, and a call for each action."""
        calls = []
        for action in decision.actions:
            verb, _, argument = action.partition("[")
            calls.append(self._call(ACT, action) if self.verbs is None else self._call(verb, argument[:-1]))
        return "\n".join([self.write_thought(decision.thought), *calls])

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Accepts a thought and one or more calls.

        A call that is not JSON, has other keys or names an unknown function makes the whole reply unreadable.
        """
        thought, *rest = split_at_tags(reply, self.tags)
        calls, gaps = rest[1::4], rest[3::4]
        if rest[0::2] != [CALL, CALL_END] * len(calls) or not calls or any(gap.strip() for gap in gaps):
            return ParsedReply("", (), self.form)
        actions = [self._action(call) for call in calls]
        valid_actions = [action for action in actions if action is not None]
        if len(valid_actions) < len(actions):
            return ParsedReply(thought.strip(), (), self.form)
        return self._reading(thought.strip(), valid_actions, actions_per_turn)

    def write_thought(self, thought: str) -> str:
        """The thought, with a backslash in any tag that it contains."""
        return self.escape(thought)

    def read_thought(self, reply: str) -> ParsedReply:
        """Accepts any non-empty text without a tag."""
        if len(split_at_tags(reply, self.tags)) > 1:
            return ParsedReply("", (), self.thought_form)
        return self._thought_alone(reply.strip())

    def action_begins(self, reply: str) -> int:
        """At the tag of the first call."""
        return reply.index(CALL)

    def escape(self, text: str) -> str:
        """Puts a backslash into each tag of this format."""
        return escape_tags(text, self.tags)

    def observation(self, text: str) -> str:
        """The escaped text between `<tool_response>` tags."""
        return f"{RESPONSE}\n{self.escape(text)}\n{RESPONSE_END}"

    def said(self, shown: str) -> str:
        """The text without the `<tool_response>` tags."""
        return shown.removeprefix(f"{RESPONSE}\n").removesuffix(f"\n{RESPONSE_END}")

    @property
    def _functions(self) -> list[str]:
        return [ACT] if self.verbs is None else sorted(self.verbs)

    @property
    def _argument(self) -> str:
        return "action" if self.verbs is None else "text"

    def _call(self, name: str, value: str) -> str:
        function = json.dumps({"name": name, "arguments": {self._argument: f" {value}"}}, ensure_ascii=False)
        pieces = split_at_tags(function, self.tags)
        pieces[1::2] = [f"\\u003c{tag[1:]}" for tag in pieces[1::2]]  # JSON's escape of <, so that no tag is quoted
        return f"{CALL}\n{''.join(pieces)}\n{CALL_END}"

    def _action(self, call: str) -> str | None:
        """The action of a call in the world's grammar; None if the call is malformed."""
        function = _json(call)
        if not isinstance(function, dict) or sorted(function) != ["arguments", "name"]:
            return None
        name, arguments = function["name"], function["arguments"]
        if name not in self._functions or not isinstance(arguments, dict) or list(arguments) != [self._argument]:
            return None
        value = arguments[self._argument]
        if not isinstance(value, str):
            return None
        return value.strip() if self.verbs is None else f"{name}[{value.strip()}]"


def _json(text: str) -> Any:
    """The parsed JSON; None if it cannot be parsed. Never raises."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):  # not JSON, half a surrogate pair, or nested beyond the reader's depth
        return None
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a duplicate key: which value is meant would be a guess."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)
