"""Rendering of the HTML templates, with escaping.

All text of policies and worlds reaches a page through a template, which escapes it: a reply of `<script>` is shown,
never run. Control characters are shown as codes. A name that a template does not know is an error.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from turnwise.reporting import formatting, token_heat_map
from turnwise.reporting.figures import drawing
from turnwise.reporting.figures.drawing import Figure

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
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"drawing": drawing, "heat_map": token_heat_map, "undefined": formatting.UNDEFINED}
    environment.filters |= {
        "basis": formatting.basis,
        "bounds": formatting.bounds,
        "duration": formatting.duration,
        "ending": formatting.ending,
        "heading": formatting.heading,
        "heat_tokens": token_heat_map.heat_tokens,
        "number": formatting.number,
        "of_processes": formatting.of_processes,
        "probability": formatting.probability,
        "reply_log_probability": formatting.reply_log_probability,
        "shade": token_heat_map.shade,
        "shortened": shortened,
        "signed": formatting.signed,
        "svg": svg,
        "turn_title": formatting.turn_title,
        "verdict": formatting.verdict,
    }
    return environment


def source(name: str) -> Markup:
    """A file of the folder `templates` as it is: a script, whose digest is part of the content security policy."""
    environment = templates()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def shortened(content: str) -> str:
    """The text, cut to `LONGEST` characters with a note of how many are left out."""
    if len(content) <= LONGEST:
        return content
    return f"{content[:LONGEST]} … ({len(content) - LONGEST:,} more characters)"


def svg(figure: Figure) -> Markup:
    """The figure as an SVG element with its description as alternative text. matplotlib escapes the names in it."""
    described = escape(formatting.visible(figure.description))
    return Markup(figure.svg().replace("<svg ", f'<svg role="img" aria-label="{described}" ', 1))


def _finalized(value: object) -> object:
    """What a template prints: markup as it is, anything else as text without control characters, which is escaped."""
    return value if isinstance(value, Markup) else formatting.visible(str(value))
