"""HTML that cannot forget to escape: whatever is not `Markup` is text, and is escaped where it enters.

What policies and worlds wrote goes through here on its way into the page, so a reply of `<script>` is shown, never run.
"""

from __future__ import annotations

import html


class Markup(str):
    """HTML that is already safe to place into a page. Made by `tag` and `text`, and by hand only around constants."""

    __slots__ = ()


def text(content: object) -> Markup:
    r"""Content as escaped text; what is `Markup` passes as it is. A control character is shown as its code, `\x1b`."""
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(visible(str(content))))


def visible(content: str) -> str:
    r"""The content with its control characters as their codes, `\x1b`; line ends and tabs remain as they are."""
    return content.translate(_VISIBLE_CONTROLS)


def tag(element: str, *children: object, **attributes: object) -> Markup:
    """An element around its children, each made safe by `text`.

    Attributes are escaped likewise; a trailing underscore is dropped (`class_`), inner ones become hyphens
    (`aria_label`), and one that is None is left out.
    """
    opening = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{element}{opening}>{''.join(text(child) for child in children)}</{element}>")


def join(*children: object) -> Markup:
    """The children one after the other, each made safe by `text`."""
    return Markup("".join(text(child) for child in children))


_VISIBLE_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
