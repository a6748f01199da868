"""The table of the errors' codes, read from the code that raises them; `site_pages` puts it into the site."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("turnwise", "tasks", "flows", "envs", "lab")
CODE = re.compile(r"TW(-[a-z]+)+")


def raised_codes() -> dict[str, list[str]]:
    """By code, in alphabetical order, the messages that it ends, with … for what each message fills in.

    Where no message stands beside the code, it is what the class of the error means.
    """
    trees = [ast.parse(path.read_text()) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    classes = {each.name: each for tree in trees for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    messages: dict[str, dict[str, None]] = defaultdict(dict)
    for code, message, kind in sorted(
        (each for tree in trees for each in _codes_in(tree)), key=lambda each: not each[1]
    ):
        if message or not messages[code]:
            messages[code][message or str(ast.get_docstring(classes[kind])).partition("\n")[0]] = None
    return {code: list(messages[code]) for code in sorted(messages)}


def table() -> str:
    """A row for each message: the code, what must hold, and what to do."""
    rows = ["| code | what must hold | what to do |", "|---|---|---|"]
    for code, messages in raised_codes().items():
        for message in messages:
            must, _, rest = message.partition("; found" if "; found" in message else "; ")
            what_to_do = rest.rpartition(": ")[2] if re.search(r": \w", rest) else ""
            cells = f"`{code}`", f"… {must}" if must.startswith("must ") else must, what_to_do
            rows.append(f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |")
    return "\n".join(rows)


def _codes_in(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Every code that a call takes, with the argument before it as a message, and the name of what is called."""
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        for message, code in pairwise(call.args):
            for each in ast.walk(code) if not isinstance(code, ast.Call) else ():
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and CODE.fullmatch(each.value):
                    yield each.value, _text(message), getattr(call.func, "id", getattr(call.func, "attr", ""))


def _text(message: ast.expr) -> str:
    """What a text says, with … in place of what is filled in; empty where it is made elsewhere."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "…" for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + (_text(right) or "…")
        case ast.IfExp(body=body):
            return _text(body)
        case _:
            return ""
