"""The service's OpenAPI document as a page to read: worlds, routes and their fields, without scripts or foreign files.

FastAPI's own page loads its program from elsewhere, which a machine without a network cannot do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse

from envs.service.routes import Service

OWN = "The service's own protocol"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
tr + tr { border-top: 1px solid #8886 }
summary { cursor: pointer; padding: .3rem 0 }
details > * + * { margin-left: 1.5rem }
"""

page_routes = APIRouter(include_in_schema=False)


@page_routes.get("/")
async def page(request: Request) -> HTMLResponse:
    """The page, made from the document as it is."""
    application: FastAPI = request.app
    service: Service = application.state.service
    names = {world: served.description.facts.name for world, served in service.worlds.items()}
    return HTMLResponse(openapi_page(application.openapi(), names), headers={"Content-Security-Policy": _POLICY})


def openapi_page(document: Mapping[str, Any], worlds: Mapping[str, str]) -> str:
    """The page of an OpenAPI document, with the served worlds: by id, their name."""
    title = escape(document["info"]["title"])
    return "".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1>",
            *(f"<p>{_prose(each)}</p>" for each in document["info"]["description"].strip().split("\n\n")),
            "<p>For programs: <a href='/v2/openapi.json'>/v2/openapi.json</a>.</p><h2>Worlds</h2>",
            _table(("id", "name"), ((f"<code>{escape(world)}</code>", escape(name)) for world, name in worlds.items())),
            *_routes(document["paths"]),
            "<h2>What is sent and answered</h2>",
            *(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
            "</body></html>",
        ]
    )


def _routes(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A heading for each tag, and below it what unfolds for each route."""
    group = None
    for path, methods in paths.items():
        for method, route in methods.items():
            if group != (group := (route.get("tags") or [OWN])[0]):
                yield f"<h2>{escape(group)}</h2>"
            first, _, rest = _prose(route["description"]).partition(". ")
            yield f"<details><summary><code>{method.upper()} {escape(path)}</code> {first}</summary><p>{rest}</p>"
            yield _table(
                ("parameter", "in", "type", "meaning"),
                (
                    (f"<code>{escape(each['name'])}</code>", each["in"], _type(each["schema"]), _meaning(each))
                    for each in route.get("parameters", [])
                ),
            )
            for title, content in (("body", route.get("requestBody")), ("answer", route["responses"]["200"])):
                schema = ((content or {}).get("content", {}).get("application/json") or {}).get("schema")
                yield f"<p>{title}: {_type(schema)}</p>" if schema else ""
            yield "</details>"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    rows = (
        (
            f"<code>{escape(field)}</code>",
            _type(field_schema),
            "" if field in required else "optional",
            _meaning(field_schema),
        )
        for field, field_schema in schema.get("properties", {}).items()
    )
    heading = f"<h3 id='{escape(name)}'>{escape(name)}</h3><p>{_prose(schema.get('description', ''))}</p>"
    return heading + _table(("field", "type", "", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    """What a field holds, in a few words; other schemas are links."""
    if reference := schema.get("$ref"):
        name = escape(reference.rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " | ".join(f"<code>{escape(str(choice))}</code>" for choice in choices)
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_type, parts))
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if isinstance(further := schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(further)}"
    return escape(str(schema.get("type", "any")))


def _meaning(entry: Mapping[str, Any]) -> str:
    return _prose(entry.get("description") or entry.get("schema", {}).get("description") or "")


def _prose(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    return f"<table><tr>{head}</tr>{body}</table>" if body else ""
