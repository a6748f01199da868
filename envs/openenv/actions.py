"""From the text that a policy writes to the object that an OpenEnv server takes, by the schema of its actions.

An action of OpenEnv is an object with fields. Three forms turn a text into one:

* a field: the text is the value of one field, as a number or a choice where the schema says so;
* `json`: the text is the whole object;
* `tools`: `TOOL[ARGUMENTS]` calls a tool of an environment whose actions are tool calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["field", "json", "tools"]
OF_EVERY_ACTION = ("metadata", "type")
"""Fields that are no part of what a policy decides."""


@dataclass(frozen=True)
class ActionForm:
    """How a text becomes an action."""

    form: Form
    schema: Mapping[str, Any]
    field: str = ""
    """The field that the text is the value of."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that the schema allows, where it lists them."""
        if self.form != "field":
            return ()
        return tuple(map(as_text, _resolved(self.schema, self.field).get("enum", ())))

    @property
    def grammar(self) -> str:
        """What an action looks like, for a policy that has never seen one."""
        if self.form == "tools":
            return 'TOOL[ARGUMENTS] calls a tool, with a JSON object such as {"a": 1} as its arguments.'
        if self.form == "json":
            return f"A JSON object with the fields {', '.join(_decided(self.schema))}."
        if self.choices:
            return f"{', '.join(self.choices)}."
        field_schema = _resolved(self.schema, self.field)
        kind = {"integer": "A whole number", "number": "A number", "boolean": "true or false"}
        what = str(field_schema.get("description", "")).strip().rstrip(".")
        return f"{kind.get(str(field_schema.get('type')), 'A text')}{f': {what}' if what else ''}."

    def action(self, text: str) -> dict[str, Any] | None:
        """The action that a text means; None for a text that means none. The server checks the rest."""
        if self.form == "tools":
            return _call(text)
        if self.form == "json":
            action = _parsed(text)
            return action if isinstance(action, dict) else None
        field_schema = _resolved(self.schema, self.field)
        if "enum" in field_schema:
            return next(({self.field: each} for each in field_schema["enum"] if as_text(each) == text), None)
        return {self.field: text if field_schema.get("type") == "string" else _parsed(text)}


def action_form(schema: Mapping[str, Any], form: str | None) -> ActionForm:
    """The form of a server's actions: `form` is `json`, `tools` or the name of a field; None: by the schema.

    Raises ValueError for a field that the schema lacks, and where the schema leaves it open.
    """
    fields = _decided(schema)
    if form in ("json", "tools"):
        return ActionForm("json" if form == "json" else "tools", schema)
    if form is not None:
        if form not in fields:
            raise ValueError(
                f"action must be json, tools or one of the action's fields, {', '.join(fields)}; found {form!r}"
            )
        return ActionForm("field", schema, form)
    if {"tool_name", "arguments"} <= set(fields):
        return ActionForm("tools", schema)
    required = [name for name in fields if name in schema.get("required", ())] or list(fields)
    if len(required) != 1:
        raise ValueError(
            f"action must say what a text means, json or one of the action's fields, {', '.join(fields)}; it says "
            "nothing, and the server's schema asks for several"
        )
    return ActionForm("field", schema, required[0])


def as_text(value: Any) -> str:
    """A value as a policy writes it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _decided(schema: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in schema.get("properties", {}) if name not in OF_EVERY_ACTION)


def _resolved(schema: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """What the schema says of a field, with the definition that it refers to."""
    field_schema: Mapping[str, Any] = schema["properties"][field]
    for each in (field_schema, *field_schema.get("allOf", ())):
        if name := str(each.get("$ref", "")).rpartition("/")[2]:
            return {**schema.get("$defs", {}).get(name, {}), **field_schema}
    return field_schema


def _call(text: str) -> dict[str, Any] | None:
    name, bracket, rest = text.partition("[")
    if not bracket or not rest.endswith("]"):
        return None
    arguments = _parsed(rest[:-1]) if rest[:-1].strip() else {}
    if not isinstance(arguments, dict):
        return None
    return {"type": "call_tool", "tool_name": name.strip(), "arguments": arguments}


def _parsed(text: str) -> Any:
    """A JSON value; a text that is none, as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
