"""Reply formats by name: how observations are shown to a policy, and how its replies are written and parsed.

See `turnwise.agent.formats.contract` for what a format is responsible for, and what a turn is.
"""

from __future__ import annotations

import inspect

from turnwise.agent.formats.contract import Format, ParsedReply, thought_lengths, thought_tokens
from turnwise.agent.formats.line import LineFormat
from turnwise.agent.formats.native_tools import NativeToolsFormat
from turnwise.agent.formats.react import ReactFormat
from turnwise.agent.formats.search import SearchFormat
from turnwise.agent.formats.tags import split_at_tags
from turnwise.agent.formats.think_answer import ThinkAnswerFormat
from turnwise.agent.formats.tool_json import ToolJsonFormat
from turnwise.agent.formats.validated import ValidatedFormat
from turnwise.errors import ConfigurationError
from turnwise.plugins import FORMAT, plugin
from turnwise.world import World

__all__ = [
    "FORMATS",
    "Format",
    "LineFormat",
    "NativeToolsFormat",
    "ParsedReply",
    "ReactFormat",
    "SearchFormat",
    "ThinkAnswerFormat",
    "ToolJsonFormat",
    "format_class",
    "make_format",
    "split_at_tags",
    "thought_lengths",
    "thought_tokens",
]

FORMATS: dict[str, type[Format]] = {
    form.name: form
    for form in (LineFormat, NativeToolsFormat, ReactFormat, SearchFormat, ThinkAnswerFormat, ToolJsonFormat)
}


def format_class(name: str) -> type[Format]:
    """The class of a format: one of `FORMATS`, or a plug-in (`turnwise.plugins`). Raises ConfigurationError."""
    if name in FORMATS:
        return FORMATS[name]
    format_class = plugin(FORMAT, "agent.format", name, sorted(FORMATS))
    if not (isinstance(format_class, type) and issubclass(format_class, Format)) or inspect.isabstract(format_class):
        raise ConfigurationError(
            f"agent.format {name!r} must name a subclass of turnwise.agent.formats.Format with all of its methods; "
            f"found {format_class!r}",
            "TW-plugin-kind",
        )
    return format_class


def make_format(name: str, world: World) -> Format:
    """A format for a world; what one of the user's own answers is validated (`turnwise.agent.formats.validated`).

    Raises ConfigurationError if it is unknown or cannot express the world's actions.
    """
    form = format_class(name)(world.verbs)
    form.require_expressible(world)
    return form if name in FORMATS else ValidatedFormat(form)
