"""WebArena's actions (arXiv 2307.13854), read from text.

Differs from WebArena: an action is the whole text and nothing around it; names of keys are checked before they are
pressed; a typed text has at most `LONGEST_TEXT` characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_TEXT = 1_000
LONGEST_ADDRESS = 2_000

GRAMMAR = (
    "click [ID], hover [ID], type [ID] [TEXT] [1] (fills a field and presses Enter; [0]: without), press [KEYS] "
    "such as press [Control+a], scroll [down] or scroll [up], new_tab, tab_focus [NUMBER], close_tab, goto [URL], "
    "go_back, go_forward, stop [ANSWER]."
)

LEGAL = f"Legal: {GRAMMAR}"

_FORMS = {
    "click": r" ?\[(?P<number>[0-9]{1,6})\]",
    "hover": r" ?\[(?P<number>[0-9]{1,6})\]",
    # The text is matched as short as possible, so that a final [0] or [1] is not a part of it.
    "type": r" ?\[(?P<number>[0-9]{1,6})\] ?\[(?P<text>.*?)\](?: ?\[(?:press_enter_after=)?(?P<enter>[01])\])?",
    "press": r" ?\[(?P<text>[^\[\]]+|[\[\]])\]",
    "scroll": r" ?\[(?:direction=)?(?P<text>up|down)\]",
    "new_tab": "",
    "tab_focus": r" ?\[(?P<number>[0-9]{1,6})\]",
    "close_tab": "",
    "goto": r" ?\[(?P<text>.+)\]",
    "go_back": "",
    "go_forward": "",
    "stop": r"(?: ?\[(?P<text>.*)\])?",
}
VERBS = tuple(_FORMS)
_PATTERNS = {verb: re.compile(verb + form, re.DOTALL) for verb, form in _FORMS.items()}

_MODIFIERS = {"ctrl": "Control", "control": "Control", "shift": "Shift", "alt": "Alt"}
_KEYS = {
    name.lower(): name
    for name in (
        *("Enter", "Tab", "Escape", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown", "Space"),
        *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
    )
}


class Refused(Exception):
    """Raised when text is no action or the action is not allowed here; the message tells the policy why."""


@dataclass(frozen=True)
class Action:
    """One action. `number` is an element's or a tab's; `text` is what to type, press, open or answer."""

    verb: str
    number: int = 0
    text: str = ""
    enter: bool = True


def read_action(text: str) -> Action:
    """The action in a text. Raises Refused, with the legal actions, when it contains none."""
    stripped = text.strip()
    verb = re.match("[a-z_]*", stripped).group()  # type: ignore[union-attr]  # an empty match is a match
    match = _PATTERNS[verb].fullmatch(stripped) if verb in _PATTERNS else None
    if match is None:
        raise Refused(f"Not an action. {LEGAL}")
    groups = {name: value for name, value in match.groupdict().items() if value is not None}
    argument = groups.get("text", "")
    longest = LONGEST_ADDRESS if verb == "goto" else LONGEST_TEXT
    if len(argument) > longest:
        raise Refused(f"The text in brackets must have at most {longest:,} characters; it has {len(argument):,}.")
    if verb == "press":
        argument = _key_combination(argument)
    return Action(verb, int(groups.get("number", 0)), argument, groups.get("enter", "1") == "1")


def _key_combination(text: str) -> str:
    """Key names as the browser knows them, such as `Control+a` for `ctrl+a`. Raises Refused for an unknown key."""
    # A plus sign at the end is the key of that name.
    *modifiers, key = re.findall(r"[^+]+|\+$", text) or [text]
    key_name = _KEYS.get(key.lower(), key if len(key) == 1 and key.isascii() and key.isprintable() else None)
    if key_name is None or any(modifier.lower() not in _MODIFIERS for modifier in modifiers):
        names = ", ".join([*dict.fromkeys(_MODIFIERS.values()), *_KEYS.values()])
        raise Refused(f"press needs one character or a key, after Control+, Shift+ or Alt+; the keys are {names}.")
    return "+".join([*(_MODIFIERS[modifier.lower()] for modifier in modifiers), key_name])
