"""What a scripted player writes when it is asked for a summary: the truth, short.

A small policy cannot summarise what it never saw summarised, so demonstrations hold summaries that are true and of one
form: each action that was played, with the beginning of what the world said to it, oldest first,

    Left -> You moved.; Down -> You fell into a hole.

The last action's answer is not among them: it follows the summary in the new segment, and is shown in full.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.trajectory import Turn, TurnKind

LONGEST_ANSWER = 60
"""Characters of an observation that are told."""
CHARACTERS_PER_TOKEN = 2
"""Fewer than a tokenizer that was trained on a world's texts puts into a token."""
NOTHING = "Nothing happened yet."


def recollect(turns: Sequence[Turn], longest_tokens: int) -> str:
    """A summary of these turns of about so many tokens at most; of a long history the latest part."""
    acted = [turn for turn in turns if turn.kind is TurnKind.ACT]
    answers = [*(turn.observation for turn in acted), ""][1:]
    told = [_told(turn, answer) for turn, answer in zip(acted, answers, strict=True)]
    room = longest_tokens * CHARACTERS_PER_TOKEN
    kept: list[str] = []
    for entry in reversed(told):
        if len("; ".join([entry, *kept])) > room:
            break
        kept.insert(0, entry)
    return "; ".join(kept) or (told[-1][:room].strip() if told else NOTHING)


def _told(turn: Turn, answer: str) -> str:
    played = ", ".join(turn.actions) or "a reply that could not be read"
    said = " ".join(answer.split())
    beginning = said if len(said) <= LONGEST_ANSWER else said[:LONGEST_ANSWER].rsplit(" ", 1)[0] + " ..."
    return f"{played} -> {beginning}" if beginning else played
