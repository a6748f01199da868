"""Replies of scripted policies: scripted actions, deliberate errors, and plans, lessons and summaries on request.

A small policy cannot plan, reflect or summarise unless it has seen examples. Demonstrations therefore contain truthful
thoughts, and errors to reflect on: the scripted policy `mistaken` takes the oracle's action and writes the reply
wrongly.

**Plans and lessons** come from an oracle rollout: the oracle's next actions from the current state, played in a
separate environment. It has the same task and seed and is brought to the same state by the same actions; the episode
itself is not touched. So a plan says what the oracle will do, unless the demonstration's own noise (random or mistaken
actions) intervenes. In a world that draws noise, the rollout also contains that noise, which no policy can learn to
predict: only the beginning of such a plan is reliable.

**Summaries** have one form: each action played, with the beginning of the world's answer, oldest first,

    Left -> You moved.; Down -> You fell into a hole.; Right

The answer to the last action is left out: it follows the summary in the new segment and is shown there in full. If not
everything fits, the oldest answers are left out first, then the oldest actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from turnwise import seeding
from turnwise.agent.episode import Episode
from turnwise.agent.formats import Format
from turnwise.agent.host import Host
from turnwise.agent.modes.steps import fits, worded
from turnwise.data.trajectory import Turn, TurnKind
from turnwise.errors import WorldLost
from turnwise.world import Remaining, ScriptedAction

MISTAKEN = "mistaken"
"""The scripted policy that makes deliberate errors."""
NOT_FORESEEN = ["go on"]
"""The steps in a plan or lesson when there is no oracle rollout."""
LONGEST_ANSWER = 60
"""Maximum characters of an observation that a summary quotes."""
NOTHING = "Nothing happened yet."
"""The summary of no turns."""


def act(
    episode: Episode, baseline: str, write: Callable[[ScriptedAction], str], generator: np.random.Generator
) -> None:
    """Let the scripted policy `baseline` write the acting reply that the episode waits for."""
    decision = episode.decide("oracle" if baseline == MISTAKEN else baseline, generator)
    if decision is not None:
        _say(episode, _mistaken(episode, write, decision) if baseline == MISTAKEN else write(decision))


def think(episode: Episode, looks_ahead: bool) -> None:
    """Write the plan, lesson or summary that the episode waits for.

    With `looks_ahead`, plans and lessons contain the oracle's next steps; if the world fails in the oracle rollout, the
    episode is lost.
    """
    turns, ask = episode.turns, episode.ask
    if ask.kind is TurnKind.SUMMARY:
        thought = scripted_summary(turns, ask.reply_tokens, episode.rules.format)
    else:
        try:
            steps = _oracle_actions(episode) if looks_ahead else NOT_FORESEEN
        except WorldLost as error:
            episode.lose(error)
            return
        thought = episode.rules.mode.demonstrated(turns, episode.attempt_ended, steps)
    _say(episode, episode.rules.format.write_thought(thought))


def oracle_rollout(host: Host, turns: Sequence[Turn], remaining: Remaining, most_actions: int) -> list[str]:
    """The oracle's next actions after `turns` of an attempt, until it ends or there are at least `most_actions`.

    `host` must be fresh, with the episode's task and seed, and is closed afterwards. `remaining` is what is left of the
    attempt's limits. Raises WorldLost if the world fails.
    """
    oracle_actions: list[str] = []
    try:
        host.reset()
        for turn in turns:
            if turn.actions:
                host.start(turn.actions)
                host.finish()
        while remaining.turns > 0 and remaining.actions > 0 and len(oracle_actions) < most_actions:
            decision = host.decide("oracle", seeding.generator(0, "foresight"), remaining)
            host.start(decision.actions[: remaining.actions])
            steps = host.finish()
            oracle_actions += decision.actions[: len(steps)]
            if steps[-1].terminated or steps[-1].truncated or not steps[-1].valid:
                break
            remaining = replace(remaining, turns=remaining.turns - 1, actions=remaining.actions - len(steps))
    finally:
        host.close()
    return oracle_actions


def scripted_summary(turns: Sequence[Turn], tokens: int, form: Format) -> str:
    """A summary of the turns in at most about `tokens` tokens; at least the last action, however long it is.

    `form` is the format in which the observations were shown.
    """
    acted = [turn for turn in turns if turn.kind is TurnKind.ACT]
    if not acted:
        return NOTHING
    actions = [", ".join(turn.actions) or "a reply that could not be read" for turn in acted]
    answers = [_beginning(form.said(turn.observation)) for turn in acted[1:]]
    exchanges = [f"{action} -> {answer}" for action, answer in zip(actions, answers, strict=False)] + actions[-1:]
    fewer_answers = ([*actions[:left_out], *exchanges[left_out:]] for left_out in range(len(acted)))
    fewer_actions = (actions[left_out:] for left_out in range(len(acted)))
    texts = ["; ".join(parts) for parts in (*fewer_answers, *fewer_actions)]
    return next((text for text in texts if fits(text, tokens)), texts[-1])


def _beginning(answer: str) -> str:
    text = " ".join(answer.split())
    return text if len(text) <= LONGEST_ANSWER else text[:LONGEST_ANSWER].rsplit(" ", 1)[0] + " ..."


def _oracle_actions(episode: Episode) -> list[str]:
    """The oracle's next steps: from the current state, or from the start of the next attempt if this one has ended."""
    rules = episode.rules
    host = Host(rules.world, episode.task, episode.seed, rules.patience)
    is_over = episode.attempt_ended is not None
    turns, remaining = ([], episode.at_the_start) if is_over else (episode.turns, episode.remaining)
    actions = oracle_rollout(host, turns, remaining, episode.ask.reply_tokens)
    return worded(actions, " ".join(episode.shown_observations))


def _mistaken(episode: Episode, write: Callable[[ScriptedAction], str], decision: ScriptedAction) -> str:
    """A reply with an error: with free actions one with its first word doubled, which worlds refuse, else no action."""
    reply = write(decision)
    if episode.rules.world.verbs is None:
        action = decision.actions[0]
        return write(ScriptedAction(decision.thought, (f"{action.split()[0]} {action}",)))
    return reply[: episode.rules.format.action_begins(reply)]


def _say(episode: Episode, reply: str) -> None:
    episode.receive(reply, (), (), True)
    episode.settle()
