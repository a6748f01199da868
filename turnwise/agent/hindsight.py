"""What a policy is asked about a rollout once it is known how that ended: how likely it held the right answer to be.

In the context before each turn the policy is given the right answer as its reply, written in the agent's format as
a scripted policy would write it, with the thought `THOUGHT`. Only the tokens that spell the answer are scored: that it
answers now, and how it says so, is given. IGPO (arXiv 2510.14967) does the same, with a sentence of its own in place of
`THOUGHT`. Of an action `verb[argument]` the answer is the argument, of any other the whole action.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnwise.agent.formats import Format
from turnwise.agent.replay import points
from turnwise.data.arrays import Integers, Ragged, SequenceBatch
from turnwise.data.trajectory import Trajectory
from turnwise.world import ScriptedAction, Task

if TYPE_CHECKING:
    from turnwise.policy.tokenizer import Speller

THOUGHT = "what is known is enough to answer"


def spelled_answer(action: str, form: Format, speller: Speller) -> tuple[tuple[int, ...], range]:
    """The tokens of the reply that gives this answer, and which of them spell it."""
    text = form.demonstrate(ScriptedAction(THOUGHT, (action,)))
    argument = action.partition("[")[2].removesuffix("]")
    begin, answer = form.action_begins(text), argument if form.verbs is not None else action
    if answer in text[begin:]:  # else it is written with escapes, and the action is scored as a whole
        begin = text.index(answer, begin)
        end = begin + len(answer)
    else:
        end = len(text)
    tokens = speller.reply(text)
    places = range(len(tokens) + 1)

    def characters(count: int) -> int:
        return len(speller.decode(tokens[:count]))

    return tokens, range(bisect_right(places, begin, key=characters) - 1, bisect_left(places, end, key=characters))


def answered(
    trajectories: Iterable[Trajectory], action_of: Callable[[Task], str], form: Format, speller: Speller
) -> SequenceBatch:
    """One sequence per turn, trajectory after trajectory: its context, then the right answer, whose tokens are scored.

    `action_of` is `turnwise.world.World.answer`.
    """
    tokens: list[Sequence[int]] = []
    flags: list[Integers] = []
    for trajectory in trajectories:
        reply, spelling = spelled_answer(action_of(trajectory.task), form, speller)
        for point in points(trajectory, seed=0):
            tokens.append((*point.context, *reply))
            flags.append(np.full(len(tokens[-1]), -1))
            flags[-1][len(point.context) + spelling.start : len(point.context) + spelling.stop] = point.turn
    rows = Ragged.of(tokens, np.int64)
    turns = np.concatenate(flags) if flags else np.zeros(0, dtype=np.int64)
    return SequenceBatch(rows.values, turns, np.zeros(len(turns)), rows.offsets)


def answer_scores(sequences: SequenceBatch, log_probabilities: Ragged, turns: Sequence[int]) -> Ragged:
    """The mean log-probability of the answer's tokens before each turn, of trajectories of so many `turns`."""
    of_answers = sequences.reply_rows(log_probabilities.values[sequences.mask])
    return Ragged.with_lengths(np.array([row.mean() for row in of_answers]), turns)
