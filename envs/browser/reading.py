"""A page as text: Chromium's accessibility tree, or pruned HTML, one element per line with its number.

Both views come from the same walk over the browser's own accessibility tree. Every element that can be acted on gets a
number, in document order, assigned again in every reading: `[12] button "Submit"`, or in the HTML view
`[12] <button type="submit">Submit</button>`. Everything else that is shown is a line of text without a number. Only
what lies in the window is read, so a policy has to scroll.

Differs from WebArena's tree: no indentation, no numbers for what cannot be acted on, no containers; an element without
a role of its own that listens for clicks is numbered as `clickable`, since the tree alone does not show it. Embedded
frames are not read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Literal

View = Literal["tree", "html"]
VIEWS: tuple[View, ...] = ("tree", "html")

LONGEST_NAME = 200
"""Limit on the characters of a name, a value or a text in a line."""

FIELDS = frozenset({"textbox", "searchbox", "spinbutton"})
"""Roles that can be typed into; a combobox can too unless it is a menu."""
LEAVES = FIELDS | {
    *("button", "link", "checkbox", "radio", "switch", "tab", "option", "slider", "ColorWell", "DisclosureTriangle"),
    *("menuitemcheckbox", "menuitemradio"),
}
"""Roles of elements whose name covers all of their content."""
PARENTS = frozenset({"combobox", "listbox", "menuitem", "treeitem"})
"""Roles of elements that contain others that can be acted on."""
WIDGETS = LEAVES | PARENTS
TITLES = frozenset({"heading", "image", "img"})
"""Roles shown by their name, without a number, unless they contain something that can be acted on."""
TEXTS = frozenset({"StaticText"})

LABELLED_TAGS = frozenset({"input", "select", "textarea"})
"""Tags whose name is not text of their own: the HTML view puts it before them."""
EMPTY_TAGS = frozenset({"img", "area"})
SHOWN_ATTRIBUTES = ("type", "name", "href", "placeholder", "title", "alt", "aria-label", "role", "for")


@dataclass(frozen=True)
class Element:
    """An element that can be acted on. `node` is the browser's id of it."""

    number: int
    role: str
    name: str
    value: str
    states: tuple[str, ...]
    node: int

    @property
    def is_field(self) -> bool:
        """Whether text can be typed into it."""
        return self.role in FIELDS or "editable" in self.states


@dataclass(frozen=True)
class PageReading:
    """What a page shows now.

    Equal fingerprints mean the same visible document, with the same values and marks.
    """

    lines: tuple[str, ...]
    elements: tuple[Element, ...]
    fingerprint: str

    def element(self, number: int) -> Element | None:
        """The element with that number, or None."""
        return self.elements[number - 1] if 1 <= number <= len(self.elements) else None


def read_page(
    tree: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any], window: tuple[int, int], view: View, most_lines: int
) -> PageReading:
    """Read a page from `Accessibility.getFullAXTree` and `DOMSnapshot.captureSnapshot`, taken together.

    `window`: width and height in pixels. Lines beyond `most_lines` are left out, and a last line says so.
    """
    walk = _Walk(tree, _Document(snapshot, window), view)
    lines: list[str] = []
    elements: list[Element] = []
    for line, element in walk.shown_lines():
        if len(lines) == most_lines:
            lines.append("... more follows that is not shown")
            break
        if element is not None:
            elements.append(element)
        lines.append(line)
    return PageReading(tuple(lines), tuple(elements), walk.document.fingerprint)


class _Document:
    """The DOM from the browser's snapshot: parallel lists, with indices for strings and nodes."""

    def __init__(self, snapshot: Mapping[str, Any], window: tuple[int, int]) -> None:
        self._strings: Sequence[str] = snapshot["strings"]
        document = snapshot["documents"][0]
        self._nodes = document["nodes"]
        self._window = window
        self._scrolled = (document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0))
        self._places = {node: place for place, node in enumerate(self._nodes["backendNodeId"])}
        self._bounds = dict(zip(document["layout"]["nodeIndex"], document["layout"]["bounds"], strict=True))
        self._clickable = set(self._nodes["isClickable"]["index"])

    def is_clickable(self, node: int) -> bool:
        """Whether an element other than the page itself listens for clicks."""
        place = self._places.get(node)
        return place is not None and place in self._clickable and self._tag(place) not in ("html", "body", "#document")

    def in_window(self, node: int) -> bool:
        """Whether any part of a node lies in the window. True for a node without a box, such as an option."""
        place = self._places.get(node)
        if place is None or place not in self._bounds:
            return True
        left, top, width, height = self._bounds[place]
        left, top = left - self._scrolled[0], top - self._scrolled[1]
        return left < self._window[0] and top < self._window[1] and left + width > 0 and top + height > 0

    def markup(self, node: int, text: str, value: str = "", states: Sequence[str] = ()) -> str:
        """Line of HTML for an element: its tag, a few attributes, and the text.

        For a text node, those of its parent.
        """
        place = self._places[node]
        if self._tag(place) == "#text":
            place = self._nodes["parentIndex"][place]
        tag, attributes = self._tag(place), self._attributes(place)
        pairs = [(name, attributes.get(name, "")) for name in SHOWN_ATTRIBUTES] + [("value", value)]
        opening = " ".join([tag, *(f'{name}="{escape(attribute)}"' for name, attribute in pairs if attribute), *states])
        if tag in LABELLED_TAGS:
            label = f"<label>{escape(text, quote=False)}</label> " if text else ""
            return f"{label}<{opening}>"
        return f"<{opening}>" if tag in EMPTY_TAGS else f"<{opening}>{escape(text, quote=False)}</{tag}>"

    @cached_property
    def fingerprint(self) -> str:
        """Digest of every visible node with its attributes, the values of fields, and the scroll position.

        Positions of nodes and the browser's own numbers are left out.
        """
        texts, values = self._nodes["nodeValue"], self._sparse("inputValue")
        checked, selected = set(self._nodes["inputChecked"]["index"]), set(self._nodes["optionSelected"]["index"])
        visible = [
            (
                self._tag(place),
                self._attributes(place),
                self._string(texts[place]),
                values.get(place),
            )
            for place in sorted(self._bounds)
        ]
        content = [visible, sorted(checked), sorted(selected), self._scrolled]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()

    def _tag(self, place: int) -> str:
        return self._string(self._nodes["nodeName"][place]).lower()

    def _attributes(self, place: int) -> dict[str, str]:
        pairs = [self._string(index) for index in self._nodes["attributes"][place]]
        return dict(zip(pairs[0::2], pairs[1::2], strict=True))

    def _sparse(self, name: str) -> dict[int, str]:
        column = self._nodes[name]
        return {place: self._string(index) for place, index in zip(column["index"], column["value"], strict=True)}

    def _string(self, index: int) -> str:
        return self._strings[index] if index >= 0 else ""


class _Walk:
    """The accessibility tree, in document order."""

    def __init__(self, tree: Sequence[Mapping[str, Any]], document: _Document, view: View) -> None:
        self._nodes = {node["nodeId"]: node for node in tree}
        self._root = tree[0]
        self._view = view
        self._count = 0
        self.document = document

    def shown_lines(self) -> Iterator[tuple[str, Element | None]]:
        """Every line with its element, or None if that cannot be acted on."""
        yield from self._lines(self._root, texts=True)

    def _lines(self, node: Mapping[str, Any], *, texts: bool) -> Iterator[tuple[str, Element | None]]:
        role, name = _role(node), _tidy(_value_of(node, "name"))
        visible = not node.get("ignored") and self.document.in_window(node.get("backendDOMNodeId", 0))
        if role in TEXTS:
            if texts and visible and name:
                yield name if self._view == "tree" else self.document.markup(node["backendDOMNodeId"], name), None
        elif visible and (role in WIDGETS or self._is_clickable(node)):
            yield self._widget_line(node, role, name)
            if role in PARENTS:
                yield from self._children_lines(node, texts=False)
        elif visible and role in TITLES and name and not self._holds_widget(node):
            yield self._described(node, "image" if role == "img" else role, name, "", ()), None
        elif role == "LabelText" and self._names_a_widget(node):
            yield from self._children_lines(node, texts=False)
        else:
            yield from self._children_lines(node, texts=texts)

    def _children_lines(self, node: Mapping[str, Any], *, texts: bool) -> Iterator[tuple[str, Element | None]]:
        for child in self._children(node):
            yield from self._lines(child, texts=texts)

    def _children(self, node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        return (self._nodes[child] for child in node.get("childIds", ()) if child in self._nodes)

    def _widget_line(self, node: Mapping[str, Any], role: str, name: str) -> tuple[str, Element | None]:
        """Line of an element, which has a number unless it is disabled."""
        if role not in WIDGETS:
            role, name = "clickable", _tidy(self._text(node))
        properties = {entry["name"]: entry["value"].get("value") for entry in node.get("properties", ())}
        value = _tidy(_value_of(node, "value"))
        states = _states(role, properties)
        line = self._described(node, role, name, value, [state for state in states if state != "editable"])
        if "disabled" in states:
            return line, None
        self._count += 1
        element = Element(self._count, role, name, value, states, node["backendDOMNodeId"])
        return f"[{element.number}] {line}", element

    def _described(self, node: Mapping[str, Any], role: str, name: str, value: str, states: Sequence[str]) -> str:
        if self._view == "html":
            return self.document.markup(node["backendDOMNodeId"], name, value, states)
        return " ".join([f'{role} "{name}"', *([f'= "{value}"'] if value else []), *states])

    def _is_clickable(self, node: Mapping[str, Any]) -> bool:
        """Whether a node with text listens for clicks itself and contains nothing else that does."""
        return (
            self.document.is_clickable(node.get("backendDOMNodeId", 0))
            and not self._holds_widget(node)
            and bool(_tidy(self._text(node)))
        )

    def _names_a_widget(self, label: Mapping[str, Any]) -> bool:
        """Whether the name of a widget within a label already repeats the label's text."""
        return any(
            (_role(child) in WIDGETS and bool(_value_of(child, "name"))) or self._names_a_widget(child)
            for child in self._children(label)
        )

    def _holds_widget(self, node: Mapping[str, Any]) -> bool:
        return any(
            _role(child) in WIDGETS
            or (_role(child) not in TEXTS and self.document.is_clickable(child.get("backendDOMNodeId", 0)))
            or self._holds_widget(child)
            for child in self._children(node)
        )

    def _text(self, node: Mapping[str, Any]) -> str:
        if _role(node) == "ListMarker":
            return ""
        if _role(node) in TEXTS:
            return _value_of(node, "name")
        return _value_of(node, "name") or " ".join(self._text(child) for child in self._children(node))


def _role(node: Mapping[str, Any]) -> str:
    return "none" if node.get("ignored") else str(node["role"]["value"])


def _value_of(node: Mapping[str, Any], field: str) -> str:
    return str(node.get(field, {}).get("value", ""))


def _tidy(text: str) -> str:
    """Text with single spaces, cut to `LONGEST_NAME`."""
    tidied = " ".join(text.split())
    return tidied if len(tidied) <= LONGEST_NAME else f"{tidied[:LONGEST_NAME]}..."


def _states(role: str, properties: Mapping[str, Any]) -> tuple[str, ...]:
    """States of an element that are true, in a fixed order."""
    states = [name for name in ("selected", "expanded", "focused", "disabled") if properties.get(name) is True]
    states += [name for name in ("checked", "pressed") if properties.get(name) in (True, "true", "mixed")]
    if role == "combobox" and properties.get("editable"):
        states.append("editable")
    return tuple(states)
