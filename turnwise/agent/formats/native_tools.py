"""Function calls by the model's own chat template: its argument `tools` declares them, its role `tool` answers them.

    The key is behind the door.
    <tool_call>
    {"name": "act", "arguments": {"action": " open the door"}}
    </tool_call>

A reply is that of `tool-json`, the spelling of Qwen's and Hermes' templates. What differs from `tool-json`: the
template shows the signatures and says how a call is written, in the words that its model was trained with; and what a
world answers to a call is a message of the role `tool`, in the template's own frame. What answers no call stays a
message of the user: the first observation, and why a reply could not be read.

What differs from a server with `tools`: all calls of one reply share one answer, since a turn has one observation.
"""

from __future__ import annotations

from turnwise.agent.formats.contract import Format
from turnwise.agent.formats.tool_json import ToolJsonFormat
from turnwise.config.agent import NATIVE_TOOLS
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.world import ScriptedAction, World

EXAMPLE = "up"


class NativeToolsFormat(ToolJsonFormat):
    """Free text, which is the thought, then one or more calls of the functions that the chat template shows."""

    name = NATIVE_TOOLS
    form = "Reply with a thought and then a call of a function; several actions are several calls."
    """How a call is written, the template has said."""

    @property
    def functions(self) -> DeclaredFunctions:
        """The world's functions, for the chat template."""
        names = tuple(self._functions)
        return DeclaredFunctions(names, self._argument, f" {EXAMPLE}", self._call(names[0], EXAMPLE))

    def instruction(self, world: World) -> str:
        """The world's instruction and grammar, and the form; the signatures are the template's to show."""
        return Format.instruction(self, world)

    def write(self, decision: ScriptedAction) -> str:
        """The thought, if any, and a call for each action."""
        return super().write(decision).removeprefix("\n")

    def observation(self, text: str) -> str:
        """The escaped text: the template frames it."""
        return self.escape(text)

    def said(self, shown: str) -> str:
        """The text as it was shown."""
        return shown
