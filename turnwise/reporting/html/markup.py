"""Building HTML with automatic escaping: anything that is not `Markup` is text and gets escaped.

All text of policies and worlds passes through here on its way into a page, so a reply of `<script>` is shown, never
run.
"""

from __future__ import annotations

import html


class Markup(str):
    """HTML that is safe to insert into a page. Made by `tag`, `text` and `join`, and by hand only around constants."""

    __slots__ = ()


def text(content: object) -> Markup:
    r"""Content as escaped text; `Markup` is returned unchanged. Control characters are shown as codes, `\x1b`."""
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(visible(str(content))))


def visible(content: str) -> str:
    r"""The content with control characters replaced by codes, `\x1b`; newlines and tabs are kept."""
    return content.translate(_VISIBLE_CONTROLS)


def tag(element: str, *children: object, **attributes: object) -> Markup:
    """An HTML element with its children, each escaped by `text`.

    Attribute values are escaped too. In attribute names a trailing underscore is dropped (`class_`) and inner ones
    become hyphens (`aria_label`). Attributes that are None are left out.
    """
    opening = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{element}{opening}>{''.join(text(child) for child in children)}</{element}>")


def join(*children: object) -> Markup:
    """The concatenated children, each escaped by `text`."""
    return Markup("".join(text(child) for child in children))


_VISIBLE_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
