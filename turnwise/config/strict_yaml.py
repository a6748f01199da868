"""A strict reader of YAML 1.2 that keeps the line and column of every key.

Accepted: one UTF-8 document of mappings with text keys, lists, texts, numbers, true, false and null. Refused is what
parsers interpret differently or what can do harm: duplicate keys, tags, directives, timestamps, merge keys (`<<`),
control characters, recursive anchors, whole numbers beyond 64 bits, and more nesting, values or bytes than any
experiment has.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
)
from ruamel.yaml.nodes import ScalarNode

from turnwise.errors import ConfigurationError

MOST_BYTES = 1_000_000
MOST_VALUES = 20_000
DEEPEST = 50
"""Most levels of nested mappings and lists."""
KINDS = ("null", "bool", "int", "float", "str")
NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that are refused in texts: controls other than tab and line breaks, surrogates, and noncharacters."""

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class YamlPlace:
    """A position in a file; line and column are counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class YamlDocument:
    """A parsed document."""

    value: Any
    places: Mapping[Keys, YamlPlace]
    """The position of each key and each list item, by the path of keys and indices to it."""


def read_document(content: bytes, source: Path | str) -> YamlDocument:
    """The single document in `content`; its value is None where there is none.

    Args:
        content: the bytes of a file, or of a command-line setting.
        source: for error messages: a Path, shown with line and column, or a text, shown without.

    Raises:
        ConfigurationError: `content` is not such a document. The message begins with the source.
    """
    document = _document(content, source)
    return YamlDocument(copy.deepcopy(document.value), document.places)


@lru_cache(maxsize=64)  # parsing takes 20 ms, and many experiments begin with the same file
def _document(content: bytes, source: Path | str) -> YamlDocument:
    """See `read_document`. The document is shared by all who read the same content: it must not be changed."""
    if len(content) > MOST_BYTES:
        raise ConfigurationError(
            f"{source}: must have at most {MOST_BYTES:,} bytes; found {len(content):,}", "TW-large-file"
        )
    text = _decode(content, source)
    _require_text(text, source)
    return _Reading(source, text).document()


def _decode(content: bytes, source: Path | str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        place = _locate(source, _end_place(before))
        raise ConfigurationError(
            f"{place}: must be UTF-8; found the byte 0x{content[error.start]:02x}: save it as UTF-8", "TW-encoding"
        ) from None


def _require_text(text: str, source: Path | str) -> None:
    if match := NOT_TEXT.search(text):
        raise ConfigurationError(
            f"{_locate(source, _end_place(text[: match.start()]))}: must hold no control characters; found "
            f"U+{ord(match[0]):04X}: remove it",
            "TW-control-character",
        )


def _end_place(text: str) -> YamlPlace:
    """The position just after a text."""
    return YamlPlace(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _locate(source: Path | str, place: YamlPlace) -> str:
    return f"{source}:{place.line}:{place.column}" if isinstance(source, Path) else source


@dataclass
class _Anchored:
    value: Any
    size: int
    """The number of values in it, itself included."""


@dataclass
class _Reading:
    """One pass over the parser's events of a text."""

    source: Path | str
    text: str
    places: dict[Keys, YamlPlace] = field(default_factory=dict)
    anchors: dict[str, _Anchored | None] = field(default_factory=dict)
    """The anchored values by anchor; None while a value is still being read."""
    value_count: int = 0
    """The number of values so far. An alias counts all values that it stands for, against exponential expansion."""
    yaml: YAML = field(default_factory=lambda: YAML(typ="safe", pure=True))
    events: Iterator[Event] = field(default_factory=lambda: iter(()))

    def document(self) -> YamlDocument:
        self.events = self.yaml.parse(self.text)
        try:
            return YamlDocument(self._whole(), self.places)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = YamlPlace(mark.line + 1, mark.column + 1) if mark is not None else YamlPlace(1, 1)
            problem = " ".join(str(error.problem or error.context).split())
            if "'\\t'" in problem:  # the most common message, and cryptic
                problem = "found a tab: indent by spaces"
            raise ConfigurationError(f"{_locate(self.source, place)}: must be YAML; {problem}", "TW-not-yaml") from None
        except YAMLError as error:
            raise ConfigurationError(
                f"{self.source}: must be YAML; {' '.join(str(error).split())}", "TW-not-yaml"
            ) from None

    def _whole(self) -> Any:
        documents, value = 0, None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._mistake(
                        event, "must hold one document; found another: leave out what follows", "TW-yaml-documents"
                    )
                if event.version or event.tags:
                    raise self._mistake(
                        event,
                        "must have no directive; found one: leave out the line that begins by %",
                        "TW-yaml-directive",
                    )
            elif isinstance(event, NodeEvent):
                value = self._value(event, ())
        return value

    def _value(self, event: NodeEvent, path: Keys) -> Any:
        if isinstance(event, AliasEvent):
            return self._resolve_alias(event)
        if len(path) > DEEPEST:
            raise self._mistake(event, f"must be at most {DEEPEST} levels deep; found more", "TW-yaml-too-deep")
        if getattr(event, "tag", None) is not None:
            raise self._mistake(event, f"must have no tag; found {event.tag}: leave it out", "TW-yaml-tag")
        before = self.value_count
        self._count(event, 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, MappingStartEvent):
            value: Any = self._mapping(path)
        elif isinstance(event, CollectionStartEvent):
            value = self._list(path)
        else:
            assert isinstance(event, ScalarEvent)
            value = self._scalar(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value, self.value_count - before)
        return value

    def _mapping(self, path: Keys) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self._value(event, (*path, ""))
            if not isinstance(key, str):
                raise self._mistake(event, f"a key must be a text; found {key!r}", "TW-yaml-key")
            if key in values:
                first = self.places[(*path, key)]
                raise self._mistake(
                    event,
                    f"a key must stand once; found {key!r} again, after line {first.line}: leave one out",
                    "TW-repeated-key",
                )
            self.places[(*path, key)] = _place(event)
            values[key] = self._value(next(self.events), (*path, key))
        return values

    def _list(self, path: Keys) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            self.places[(*path, len(values))] = _place(event)
            values.append(self._value(event, (*path, len(values))))
        return values

    def _scalar(self, event: ScalarEvent) -> Any:
        tag = self.yaml.resolver.resolve(ScalarNode, event.value, event.implicit)
        kind = str(tag).rpartition(":")[2]
        if kind == "merge":
            raise self._mistake(
                event, "must have no merge key; found <<: write the keys themselves, or an overlay", "TW-yaml-merge-key"
            )
        if kind not in KINDS:
            raise self._mistake(
                event,
                f"must not be a {kind}, which readers differ on; found {event.value}: put quotes",
                "TW-ambiguous-value",
            )
        if kind == "int" and len(event.value) > 100:
            raise self._too_large(event)
        node = ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            value = self.yaml.constructor.construct_object(node)
        except ValueError:  # of `0x_` and `._`, which only look like numbers
            raise self._mistake(
                event, f"a number must have digits; found {event.value}: put quotes", "TW-ambiguous-value"
            ) from None
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise self._too_large(event)
        if isinstance(value, str) and (match := NOT_TEXT.search(value)):
            raise self._mistake(
                event,
                f"must hold no control characters; found U+{ord(match[0]):04X}: remove it",
                "TW-control-character",
            )
        return value

    def _too_large(self, event: Event) -> ConfigurationError:
        return self._mistake(event, "a whole number must fit into 64 bits; found a larger one", "TW-large-number")

    def _resolve_alias(self, event: AliasEvent) -> Any:
        if event.anchor not in self.anchors:
            raise self._mistake(
                event,
                f"*{event.anchor} must stand after its anchor; found none: write &{event.anchor}",
                "TW-yaml-anchor",
            )
        anchor = self.anchors[event.anchor]
        if anchor is None:
            raise self._mistake(
                event, f"an anchor must not stand within itself; found *{event.anchor} in it", "TW-yaml-anchor"
            )
        self._count(event, anchor.size)
        return anchor.value

    def _count(self, event: Event, values: int) -> None:
        self.value_count += values
        if self.value_count > MOST_VALUES:
            raise self._mistake(event, f"must hold at most {MOST_VALUES:,} values; found more", "TW-large-file")

    def _mistake(self, event: Event, message: str, code: str) -> ConfigurationError:
        return ConfigurationError(f"{_locate(self.source, _place(event))}: {message}", code)


def _place(event: Event) -> YamlPlace:
    return YamlPlace(event.start_mark.line + 1, event.start_mark.column + 1)
