"""Functions that are declared to a chat template by its argument `tools`, and answers in its role `tool`.

A template made for function calls shows the functions' signatures where its model was trained to read them, says how a
call is written, and frames the answer to a call as a message of its own role. What it shows is taken from its own
rendering, as `turnwise.policy.tokenizer.ChatFrame` does for the other messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from turnwise.errors import ConfigurationError
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.policy.tokenizer import ChatFrame, generation_end_tokens, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "turnwise-probes 'quotes' \"and\"\na line"
"""A text that a template which rewrites answers, as JSON for instance, does not show as it is."""
OTHERWISE = "set agent.format to tool-json, which needs nothing of a template"


# An artifact never changes under its digest, so its tokenizer can be cached by folder.
@cache
def chat_frame(folder: Path, functions: DeclaredFunctions | None = None) -> ChatFrame:
    """The chat frame of an artifact's tokenizer, as `load_frame` has it; with `functions` one that declares them.

    It is read once in a process. Raises ConfigurationError as `ChatFrame` and `FunctionFrame` do.
    """
    return frame_of(load_tokenizer(folder), generation_end_tokens(folder), functions)


def frame_of(
    tokenizer: PreTrainedTokenizerBase, end_tokens: Sequence[int], functions: DeclaredFunctions | None
) -> ChatFrame:
    """The chat frame of a tokenizer with further end tokens; with `functions` one that declares them."""
    return ChatFrame(tokenizer, end_tokens) if functions is None else FunctionFrame(tokenizer, functions, end_tokens)


class FunctionFrame(ChatFrame):
    """A chat frame whose template shows functions, and the answers to their calls in the role `tool`.

    Raises ConfigurationError where the template does not show the functions, spells a call otherwise than the agent's
    format, or does not show an answer as it is; and as `ChatFrame` does.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        functions: DeclaredFunctions,
        further_end_tokens: Sequence[int] = (),
    ) -> None:
        self._functions = functions
        super().__init__(tokenizer, further_end_tokens)
        _require_functions(tokenizer, functions)
        # The tokens between a reply's end token and the answer to its call, and from there to the next reply.
        _, _, between, self._after_answer = self._pieces_around(["user", "assistant", "tool"])
        self._before_answer = between[1:]

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """The tokens between `reply` and the next one; the answer to a call is a message of the role `tool`."""
        if not answers_call:
            return super().continuation(observation, reply)
        return (*self._closing(reply), *self._before_answer, *self._text(observation), *self._after_answer)

    def _template_arguments(self) -> Mapping[str, Any]:
        return {"tools": self._functions.signatures}


def _require_functions(tokenizer: PreTrainedTokenizerBase, functions: DeclaredFunctions) -> None:
    """Raise ConfigurationError where the template does not serve these functions."""
    question = {"role": "user", "content": "turnwise"}
    call = {"name": functions.names[0], "arguments": {functions.argument: functions.example_value}}
    calling = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]}
    answer = {"role": "tool", "content": PROBE}

    def render(*messages: Mapping[str, Any], tools: Any) -> str:
        try:
            text: str = tokenizer.apply_chat_template([question, *messages], tools=tools, tokenize=False)
        except TemplateError as error:
            raise ConfigurationError(
                f"agent.format native-tools needs a chat template with calls and the role tool; the policy's refuses "
                f"them: {error}: {OTHERWISE}",
                "TW-functions-not-shown",
            ) from error
        return text

    if render(tools=functions.signatures) == render(tools=None):
        raise ConfigurationError(
            "agent.format native-tools needs a chat template that shows functions, by its argument tools; the policy's "
            f"does not read it: {OTHERWISE}",
            "TW-functions-not-shown",
        )
    whole = render(calling, answer, tools=functions.signatures)
    if functions.example not in whole:
        raise ConfigurationError(
            f"agent.format native-tools writes a call as {functions.example!r}; the policy's chat template spells it "
            f"otherwise: {OTHERWISE}",
            "TW-functions-not-shown",
        )
    if PROBE not in whole:
        raise ConfigurationError(
            "agent.format native-tools needs a chat template that shows an answer as it is; the policy's rewrites "
            f"messages of the role tool: {OTHERWISE}",
            "TW-functions-not-shown",
        )
