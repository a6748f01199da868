"""What a policy is asked about a rollout once it is known how that ended.

**The right answer.** In the context before each turn the policy is given the right answer as its reply, written in the
agent's format as a scripted policy would write it, with the thought `THOUGHT`. Only the tokens that spell the answer
are scored: that it answers now, and how it says so, is given. IGPO (arXiv 2510.14967) does the same, with a sentence of
its own in place of `THOUGHT`. Of an action `verb[argument]` the answer is the argument, of any other the whole action.

**Hindsight.** The whole episode once more, token by token, with what came of it at the end of the first message: the
actions of another episode of the group that solved the task, the first there is; where no episode solved it, how this
one ended, and the world's last words. SDPO (arXiv 2601.20802) has this order, too. The only success of its group is
shown nothing.

**What a privileged critic sees.** The same, with the task's right answer in place of what came of the episode.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from turnwise.agent.context import ConversationFrame
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import Format
from turnwise.agent.replay import points
from turnwise.data.arrays import Integers, Ragged, SequenceBatch, joined
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.world import ScriptedAction, Task

if TYPE_CHECKING:
    from turnwise.policy.tokenizer import ChatFrame

THOUGHT = "what is known is enough to answer"


def spelled_answer(action: str, form: Format, speller: ChatFrame) -> tuple[tuple[int, ...], range]:
    """The tokens of the reply that gives this answer, and which of them spell it."""
    text = form.demonstrate(ScriptedAction(THOUGHT, (action,)))
    verb, _, argument = action.partition("[")
    answer = argument.removesuffix("]") if form.verbs is not None else action
    # Its letters may stand before it, too, as in a tag: it begins where another answer's reply is another.
    other = "1" if answer.startswith("0") else "0"
    others = form.demonstrate(ScriptedAction(THOUGHT, (f"{verb}[{other}]" if form.verbs is not None else other,)))
    begin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, others, strict=False)))
    end = begin + len(answer)
    if text[begin:end] != answer:  # it is written with escapes, and the action is scored as a whole
        begin, end = form.action_begins(text), len(text)
    tokens = speller.reply(text)
    places = range(len(tokens) + 1)

    def characters(count: int) -> int:
        return len(speller.decode(tokens[:count]))

    return tokens, range(bisect_right(places, begin, key=characters) - 1, bisect_left(places, end, key=characters))


def answered(
    trajectories: Iterable[Trajectory], action_of: Callable[[Task], str], form: Format, speller: ChatFrame
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
    answer_rows = sequences.reply_rows(log_probabilities.values[sequences.mask])
    return Ragged.with_lengths(np.array([row.mean() for row in answer_rows]), turns)


def hindsight(trajectories: Sequence[Trajectory], form: Format) -> list[str | None]:
    """What each episode is shown of what came of it; None where there is nothing to show."""
    solved: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.success:
            solved.setdefault(trajectory.group, []).append(trajectory)
    texts: list[str | None] = []
    for trajectory in trajectories:
        other = next((each for each in solved.get(trajectory.group, []) if each is not trajectory), None)
        if other is not None:
            actions = ", ".join(action for turn in other.turns for action in turn.actions)
            texts.append(form.escape(f"This solves the task: {actions}"))
        elif trajectory.success:
            texts.append(None)
        else:
            ending = trajectory.ending.value.replace("_", " ")
            last = form.said(trajectory.final_observation)
            texts.append(form.escape(f"An earlier attempt ended with {ending}: {last}"))
    return texts


def shown_hindsight(trajectories: Sequence[Trajectory], rules: EpisodeConfig) -> tuple[list[int], SequenceBatch]:
    """The episodes that are shown what came of them, by index, and what each of them then is: see `shown_again`."""
    texts = hindsight(trajectories, rules.format)
    with_text = [(index, text) for index, text in enumerate(texts) if text is not None and trajectories[index].turns]
    assert rules.frame is not None, "hindsight is spelled in the frame of a tokenizer"
    sequences = [shown_again(trajectories[index], text, rules.frame, rules.instruction) for index, text in with_text]
    return [index for index, _ in with_text], joined(sequences) if sequences else SequenceBatch.of([])


def shown_answers(trajectories: Iterable[Trajectory], rules: EpisodeConfig) -> SequenceBatch:
    """Each episode as a critic reads it that is shown the right answer of its task: see `shown_again`.

    One without a turn has no sequence: nothing was said in it.
    """
    assert rules.frame is not None, "the answer is spelled in the frame of a tokenizer"
    world, write = rules.world, rules.format.escape
    played = (each for each in trajectories if each.turns)
    texts = ((each, write(f"This solves the task: {world.answer(each.task)}")) for each in played)
    sequences = [shown_again(each, text, rules.frame, rules.instruction) for each, text in texts]
    return joined(sequences) if sequences else SequenceBatch.of([])


def shown_again(trajectory: Trajectory, text: str, frame: ConversationFrame, instruction: str | None) -> SequenceBatch:
    """The episode's one sequence, with `text` at the end of the first message.

    Raises ValueError for an episode of several segments, or one whose first message was not made by this frame.
    """
    first = trajectory.turns[0]
    parts = [part for part in (first.observation, first.asked) if part]
    sequences, _ = trajectory_arrays([trajectory]).segments(every_reply=True)
    if len(sequences) != 1 or frame.opening(instruction, "\n".join(parts)) != first.observation_tokens:
        raise ValueError("hindsight is shown to an episode that is one sequence, in the frame that it was played in")
    opening = frame.opening(instruction, "\n".join([*parts, text]))
    begin = len(first.observation_tokens)
    return SequenceBatch(
        np.concatenate([opening, sequences.tokens[begin:]]),
        np.concatenate([np.full(len(opening), -1), sequences.turn_of_token[begin:]]),
        np.concatenate([np.zeros(len(opening)), sequences.log_probabilities[begin:]]),
        np.array([0, len(sequences.tokens) + len(opening) - begin]),
    )
