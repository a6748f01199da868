"""The two actions of a search agent, for both worlds: their description and their parser."""

from __future__ import annotations

GRAMMAR = "search[QUERY] shows the passages that fit best; answer[TEXT] gives your answer and ends the episode."
LEGAL = "Legal: search[QUERY] or answer[TEXT]."


def read_action(action: str) -> tuple[str, str] | None:
    """The verb, `search` or `answer`, and its text; None for text that is no action."""
    verb, bracket, rest = action.strip().partition("[")
    verb = verb.strip().lower()
    if bracket != "[" or not rest.endswith("]") or verb not in ("search", "answer"):
        return None
    return verb, rest[:-1]
