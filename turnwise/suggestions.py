"""Spelling suggestions for unknown names, as parts of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

RENAMED: Mapping[str, str] = {
    "dead_groups": "zero_variance_groups",
    "stated_success": "success_threshold",
    "trace": "lam",
}
"""By a name that was once used in a configuration, the name that is used now."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar known name as `did you mean ...?`, or the list of all known names where none is similar.

    A name that was renamed to a known one is answered with that: `it is now called ...`.
    """
    names = list(known)
    if RENAMED.get(name) in names:
        return f"it is now called {RENAMED[name]!r}"
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else f"known are {', '.join(names) or 'none'}"


def meant(value: object, known: Iterable[str]) -> str:
    """The most similar known name as `: did you mean ...?`, or an empty text where none is similar.

    For the end of a message that has already listed the known names. A renamed one is answered as in `nearest`.
    """
    names = list(known)
    if RENAMED.get(str(value)) in names:
        return f": it is now called {RENAMED[str(value)]!r}"
    matches = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    return f": did you mean {matches[0]!r}?" if matches else ""


def unknown(name: str, known: Iterable[str]) -> str:
    """A message that the name is not known, with the suggestion of `nearest`."""
    return f"{name!r} is not a known name; {nearest(name, known)}"
