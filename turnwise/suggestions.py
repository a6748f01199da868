"""What was probably meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant by a name that is not known; all that are, where none is like it."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"known are {', '.join(names) or 'none'}"


def meant(value: object, known: Iterable[str]) -> str:
    """The end of a message that has listed the known names: the nearest one, where there is one."""
    found = difflib.get_close_matches(str(value), list(known), n=1, cutoff=0.5)
    return f": did you mean {found[0]!r}?" if found else ""


def unknown(name: str, known: Iterable[str]) -> str:
    """A name that is not known, with the nearest one."""
    return f"{name!r} is not a known name; {nearest(name, known)}"
