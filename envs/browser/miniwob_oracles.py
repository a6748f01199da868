"""Oracles for the MiniWoB++ pages: each reads the goal and the elements, and nothing that is hidden.

An oracle is a function of the goal and of what the page shows now, so it can be asked at any time, and continues from
wherever another policy has left the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from envs.browser.reading import Element
from turnwise.world import ScriptedAction

Elements = Sequence[Element]
Oracle = Callable[[str, Elements], ScriptedAction]


def _click(element: Element, thought: str) -> ScriptedAction:
    return ScriptedAction(thought, (f"click [{element.number}]",))


def _with_role(elements: Elements, *roles: str) -> list[Element]:
    return [element for element in elements if element.role in roles]


def _with_name(elements: Elements, name: str) -> list[Element]:
    return [element for element in elements if element.name == name]


def _quoted(goal: str) -> list[str]:
    return re.findall('"(.*?)"', goal)


def _give_up(why: str) -> ScriptedAction:
    """Give up, where another policy made success impossible or the goal cannot be read."""
    return ScriptedAction(why, ("stop [N/A]",))


def _press_the_named_button(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Click on the "ok" button.`"""
    (name,) = _quoted(goal)
    buttons = _with_name(_with_role(elements, "button"), name)
    return _click(buttons[0], f"the button {name}") if buttons else _give_up(f"there is no button {name}")


def _press_the_only_button(goal: str, elements: Elements) -> ScriptedAction:
    """Goals: `Click the button.` and `Close the dialog box by clicking the "x".`"""
    buttons = _with_role(elements, "button")
    return _click(buttons[0], "the only button") if buttons else _give_up("there is no button")


def _press_one(goal: str, elements: Elements) -> ScriptedAction:
    """Goals: `Click button ONE.`, and `Click button ONE, then click button TWO.`

    The button that was clicked last is visible: it has the focus.
    """
    first_is_done = any(element.name == "ONE" and "focused" in element.states for element in elements)
    name = "TWO" if first_is_done and "TWO" in goal else "ONE"
    buttons = _with_name(_with_role(elements, "button"), name)
    return _click(buttons[0], f"the button {name}") if buttons else _give_up(f"there is no button {name}")


def _follow_the_named_link(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Click on the link "dolor".` The page's links are words that listen for clicks."""
    (name,) = _quoted(goal)
    links = _with_name(_with_role(elements, "clickable", "link"), name)
    return _click(links[0], f"the link {name}") if links else _give_up(f"there is no link {name}")


def _open_the_named_tab(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Click on Tab #2.`"""
    name = goal.removeprefix("Click on ").removesuffix(".")
    tabs = _with_name(_with_role(elements, "tab"), name)
    return _click(tabs[0], name) if tabs else _give_up(f"there is no {name}")


def _look_through_the_tabs(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `... find and click on the link "dolor".` Opens the next tab or section until the link is shown."""
    (name,) = _quoted(goal)
    if links := _with_name(_with_role(elements, "clickable", "link"), name):
        return _click(links[0], f"the link {name}")
    tabs = _with_role(elements, "tab")
    if not tabs:
        return _give_up("there is nothing to look through")
    open_places = [place for place, tab in enumerate(tabs) if "expanded" in tab.states]
    following = tabs[(open_places[0] + 1) % len(tabs) if open_places else 0]
    return _click(following, f"the link {name} is not here, look in {following.name}")


def _expand_and_submit(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Expand the section below and click submit.`"""
    closed = [tab for tab in _with_role(elements, "tab") if "expanded" not in tab.states]
    return _click(closed[0], f"expand {closed[0].name}") if closed else _submit(elements)


def _tick_and_submit(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Select a, b and click Submit.` with checkboxes, of which none may be wanted, or with radio buttons."""
    names = goal.removeprefix("Select ").removesuffix(" and click Submit.").split(", ")
    for box in _with_role(elements, "checkbox", "radio"):
        if (box.name in names) != ("checked" in box.states) and (box.role == "checkbox" or box.name in names):
            return _click(box, f"{box.name} is {'' if box.name in names else 'not '}wanted")
    return _submit(elements)


def _choose_and_submit(goal: str, elements: Elements) -> ScriptedAction:
    """Goal: `Select Aruba from the list and click Submit.`"""
    name = goal.removeprefix("Select ").removesuffix(" from the list and click Submit.")
    options = _with_name(_with_role(elements, "option"), name)
    if options and "selected" not in options[0].states:
        return _click(options[0], f"choose {name}")
    return _submit(elements)


def _fill_and_submit(goal: str, elements: Elements) -> ScriptedAction:
    """Goals: `Enter "..." into the text field and press Submit.`, or one text for each of two fields, in order."""
    fields, texts = [element for element in elements if element.is_field], _quoted(goal)
    for field, text in zip(fields, texts if len(texts) == len(fields) else texts * len(fields), strict=False):
        # A password is shown as dots, one for each character.
        if field.value != text and field.value != "•" * len(text):
            return ScriptedAction(f"enter {text}", (f"type [{field.number}] [{text}] [0]",))
    return _submit(elements)


def _focus_the_field(goal: str, elements: Elements) -> ScriptedAction:
    """Goals: `Focus into the textbox.` and `Focus into the 2nd input textbox.`"""
    place = int((re.findall("[0-9]", goal) or ["1"])[0])
    fields = [element for element in elements if element.is_field]
    return _click(fields[place - 1], f"field {place}") if len(fields) >= place else _give_up(f"no field {place}")


def _submit(elements: Elements) -> ScriptedAction:
    buttons = _with_role(elements, "button")
    return _click(buttons[-1], "all is done, submit") if buttons else _give_up("there is no button")


ORACLES: dict[str, Oracle] = {
    "click-button": _press_the_named_button,
    "enter-text": _fill_and_submit,
    "click-checkboxes": _tick_and_submit,
    "click-link": _follow_the_named_link,
    "choose-list": _choose_and_submit,
    "click-tab-2": _look_through_the_tabs,
    "login-user": _fill_and_submit,
    "click-option": _tick_and_submit,
    "focus-text-2": _focus_the_field,
    "click-collapsible-2-nodelay": _look_through_the_tabs,
    "enter-password": _fill_and_submit,
    "click-test-2": _press_one,
    "click-button-sequence": _press_one,
    "enter-text-dynamic": _fill_and_submit,
    "click-tab": _open_the_named_tab,
    "click-dialog": _press_the_only_button,
    "click-collapsible-nodelay": _expand_and_submit,
    "focus-text": _focus_the_field,
    "click-test": _press_the_only_button,
}
"""The oracle of each page, in the order in which tasks are drawn from the pages."""
