"""What a format of one's own answers, held against the contract of `turnwise.agent.formats.contract`.

As `turnwise.world.validation` does for worlds: a wrong answer is a mistake in the format's code and no missing data, so
it is refused (`ContractError`) and the run stops.
"""

from __future__ import annotations

from typing import Any

from turnwise.agent.formats.contract import Format, ParsedReply
from turnwise.errors import ContractError
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.world import ScriptedAction, World
from turnwise.world.validation import quoted


class ValidatedFormat(Format):
    """A format whose answers are validated. Every method raises ContractError where one breaks the contract."""

    def __init__(self, form: Format) -> None:
        super().__init__(form.verbs)
        self._form = form
        # Those of the class in the contract: here each format has its own.
        self.name = _text(f"the name of {type(form).__name__}", form.name)  # type: ignore[misc]
        self.thought_form = _text(self._where("thought_form"), form.thought_form)  # type: ignore[misc]
        self.tags = form.tags  # type: ignore[misc]
        if not isinstance(form.tags, tuple) or not all(isinstance(tag, str) for tag in form.tags):
            raise ContractError(
                f"{self._where('tags')} must be a tuple of texts; found {quoted(form.tags)}", "TW-answer-type"
            )

    @property
    def form(self) -> str:
        """One sentence that describes a reply."""
        return _text(self._where("form"), self._form.form)

    @property
    def functions(self) -> DeclaredFunctions | None:
        """The functions that a chat template is to show."""
        functions: object = self._form.functions
        if functions is not None and not isinstance(functions, DeclaredFunctions):
            raise ContractError(
                f"{self._where('functions')} must be DeclaredFunctions or None; found {quoted(functions)}",
                "TW-answer-type",
            )
        return functions

    def write(self, decision: ScriptedAction) -> str:
        """A well-formed reply."""
        return _text(self._where("write"), self._form.write(decision))

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """The reply's thought and actions, or why it is unreadable."""
        parsed = self._reply("read", self._form.read(reply, actions_per_turn))
        if len(parsed.actions) > actions_per_turn:
            raise ContractError(
                f"the actions that {self._where('read')} returns must be at most {actions_per_turn}; found "
                f"{len(parsed.actions)}",
                "TW-answer-type",
            )
        return parsed

    def write_thought(self, thought: str) -> str:
        """A well-formed reply that is a thought alone."""
        return _text(self._where("write_thought"), self._form.write_thought(thought))

    def read_thought(self, reply: str) -> ParsedReply:
        """The reply's thought, or why it is not one."""
        return self._reply("read_thought", self._form.read_thought(reply))

    def action_begins(self, reply: str) -> int:
        """The character index at which the action begins."""
        begin: object = self._form.action_begins(reply)
        if not isinstance(begin, int) or not 0 <= begin <= len(reply):
            raise ContractError(
                f"{self._where('action_begins')} must be an index of the reply's {len(reply)} characters; found "
                f"{quoted(begin)}",
                "TW-answer-type",
            )
        return begin

    def escape(self, text: str) -> str:
        """The text with the format's tags or labels escaped."""
        return _text(self._where("escape"), self._form.escape(text))

    def require_expressible(self, world: World) -> None:
        """Raise ConfigurationError when this format cannot express the world's actions."""
        self._form.require_expressible(world)

    def instruction(self, world: World) -> str:
        """The complete instruction."""
        return _text(self._where("instruction"), self._form.instruction(world))

    def opening(self, text: str) -> str:
        """The first observation as shown to the policy."""
        return _text(self._where("opening"), self._form.opening(text))

    def observation(self, text: str) -> str:
        """A world's answer as shown to the policy."""
        return _text(self._where("observation"), self._form.observation(text))

    def said(self, shown: str) -> str:
        """The world's text in a shown observation."""
        return _text(self._where("said"), self._form.said(shown))

    def _where(self, what: str) -> str:
        return f"{what} of agent.format {type(self._form).__module__}:{type(self._form).__name__}"

    def _reply(self, method: str, parsed: Any) -> ParsedReply:
        where = self._where(method)
        if not isinstance(parsed, ParsedReply):
            raise ContractError(f"{where} must return a ParsedReply; found {quoted(parsed)}", "TW-answer-type")
        _text(f"the thought that {where} returns", parsed.thought)
        if not isinstance(parsed.actions, tuple) or not all(isinstance(action, str) for action in parsed.actions):
            raise ContractError(
                f"the actions that {where} returns must be a tuple of texts; found {quoted(parsed.actions)}",
                "TW-answer-type",
            )
        if parsed.invalid is not None:
            _text(f"the reason in invalid that {where} returns", parsed.invalid)
        return parsed


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{what} must be a text (str); found {quoted(value)}", "TW-answer-type")
    return value
