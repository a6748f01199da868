"""Rendering of the HTML templates, with escaping.

All text of policies and worlds reaches a page through a template, which escapes it: a reply of `<script>` is shown,
never run. Control characters are shown as codes. A name that a template does not know is an error.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from turnwise.reporting import formatting, token_heat_map
from turnwise.reporting.figures import drawing
from turnwise.reporting.figures.drawing import Figure

SCHEME_COLOURS = {
    drawing.INK: "var(--figure-ink)",
    drawing.GREY: "var(--figure-grey)",
    drawing.PALE: "var(--figure-line)",
    "#000000": "var(--figure-black)",
}
"""By the colour with which figures are drawn, its name in `page.css`."""
LONGEST = 4000
"""Maximum characters shown of one passage; a world's text may be a hundred times as long."""


def render(template: str, **values: object) -> str:
    """The template with these values as HTML text. Raises jinja2's UndefinedError for a name that it does not know."""
    return templates().get_template(template).render(**values)


@cache
def templates() -> Environment:
    """The templates in the folder `templates`, their filters (`turnwise.reporting.formatting`) and constants."""
    environment = Environment(
        loader=PackageLoader("turnwise.reporting.html"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"drawing": drawing, "heat_map": token_heat_map, "undefined": formatting.UNDEFINED}
    environment.filters |= {
        **formatting.FILTERS,
        "digest_of_script": digest_of_script,
        "heat_tokens": token_heat_map.heat_tokens,
        "scheme_colour": scheme_colour,
        "shade": token_heat_map.shade,
        "shortened": shortened,
        "svg": svg,
    }
    return environment


def source(name: str) -> Markup:
    """A file of the folder `templates` as it is: a script, whose digest is part of the content security policy."""
    environment = templates()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def digest_of_script(script: str) -> str:
    """A script's digest as the content security policy names it: no other script is run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def shortened(content: str) -> str:
    """The text, cut to `LONGEST` characters with a note of how many are left out."""
    if len(content) <= LONGEST:
        return content
    return f"{content[:LONGEST]} … ({len(content) - LONGEST:,} more characters)"


def svg(figure: Figure) -> Markup:
    """The figure as an SVG element with its description as alternative text. matplotlib escapes the names in it."""
    description = escape(formatting.visible(figure.description))
    return Markup(_in_scheme(figure.svg()).replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1))


def scheme_colour(colour: str) -> str:
    """The colour as CSS has it: those that a dark page turns round are names, whose values `page.css` gives."""
    return SCHEME_COLOURS.get(colour.lower(), colour)


def _in_scheme(drawing: str) -> str:
    """An SVG element whose ink, grey, lines and black follow the page's scheme, light or dark.

    matplotlib writes colours as `style="fill: #22262b"`, where CSS takes a variable; elsewhere nothing is replaced.
    """

    def replace_colours(style: re.Match[str]) -> str:
        return re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: scheme_colour(match[0]), style[0])

    return re.sub(r'\bstyle="[^"]*"', replace_colours, drawing)


def _finalize(value: object) -> object:
    """What a template prints: markup as it is, anything else as text without control characters, which is escaped."""
    return value if isinstance(value, Markup) else formatting.visible(str(value))
