"""An observation as text, in one of three views.

* template: named fields are filled into a text such as "taxi {row} {column}". An observation of several parts gives
  them in order, or by name if its parts have names. A whole number that encodes several fields, as Taxi's does, is
  decoded by their sizes, the last field changing fastest.
* ansi: the picture in letters that the environment renders itself; what is coloured there stands between < and >.
* text: the observation itself, where it is a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_COLOURED = re.compile(r"(?:\x1b\[[\d;]*m)+([^\x1b]*)(?:\x1b\[0m)+")
_PLACE = re.compile(r"\{(\w+)\}")


class Template:
    """A text with placeholders, and the names and display of an observation's fields.

    `fields`: an ordered list of mappings with one name each: from the name to its number of values, to the words for
    its values 0, 1, ..., or to None where the value is shown as it is. Raises ValueError.
    """

    def __init__(self, text: str | None, fields: Sequence[Mapping[str, Any]]) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"template must be a text such as 'row {{row}}', since view is 'template'; found {text!r}")
        is_list = isinstance(fields, list | tuple)
        if not is_list or not all(isinstance(one, Mapping) and len(one) == 1 for one in fields):
            raise ValueError(f"fields must be a list of one name each, such as [{{row: 5}}]; found {fields!r}")
        self._text = text
        self._kinds = {name: _kind(name, kind) for one in fields for name, kind in one.items()}
        if unknown := [name for name in _PLACE.findall(text) if name not in self._kinds]:
            raise ValueError(f"template must name only fields; found {unknown} beside {[*self._kinds]}")

    def fill(self, observation: Any) -> str:
        """The text with the observation's values filled in.

        Raises ValueError when the observation lacks these fields.
        """
        values = self._take_apart(observation)
        return _PLACE.sub(lambda place: self._word(place[1], values[place[1]]), self._text)

    def _take_apart(self, observation: Any) -> dict[str, Any]:
        if isinstance(observation, Mapping):
            if missing := [name for name in self._kinds if name not in observation]:
                raise ValueError(f"fields must be among the observation's, {[*observation]}; found {missing}")
            return {name: observation[name] for name in self._kinds}
        if isinstance(observation, int | np.integer):
            return self._digits(int(observation))
        parts = np.ravel(observation).tolist()
        if len(parts) != len(self._kinds):
            raise ValueError(f"fields must name the {len(parts)} parts of {observation}; found {[*self._kinds]}")
        return dict(zip(self._kinds, parts, strict=True))

    def _digits(self, number: int) -> dict[str, Any]:
        values = {}
        rest = number
        for name, kind in reversed(self._kinds.items()):
            if kind is None:
                raise ValueError(f"field {name!r} must have a size, since the observation is one number; found None")
            rest, values[name] = divmod(rest, kind if isinstance(kind, int) else len(kind))
        if rest:
            raise ValueError(f"the sizes of fields must multiply to more than any observation; found {number}")
        return values

    def _word(self, name: str, value: Any) -> str:
        kind = self._kinds[name]
        if kind is None or isinstance(kind, int):
            return str(value)
        if not 0 <= int(value) < len(kind):
            raise ValueError(f"field {name!r} must have a word for every value; found {value} and {len(kind)} words")
        return kind[int(value)]


def without_colours(picture: str) -> str:
    """The picture with < and > in place of colours, and without empty lines at its start and end."""
    return _COLOURED.sub(r"<\1>", picture).strip("\n")


def _kind(name: str, kind: Any) -> int | tuple[str, ...] | None:
    if isinstance(kind, list | tuple) and kind and all(isinstance(word, str) for word in kind):
        return tuple(kind)
    if kind is None or (isinstance(kind, int) and not isinstance(kind, bool) and kind > 0):
        return kind
    raise ValueError(f"field {name!r} must have a number of values, a list of words, or null; found {kind!r}")
