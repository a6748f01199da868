"""Replies of scripted policies: scripted actions, deliberate errors, and plans, lessons and summaries on request.

A small policy cannot plan, reflect or summarise unless it has seen examples. Demonstrations therefore contain truthful
plans and lessons (what the oracle does next, see `turnwise.agent.oracle_rollout`, and what was refused) and errors to
reflect on: the scripted policy `mistaken` takes the oracle's action and writes the reply wrongly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turnwise.agent.episode import Episode
from turnwise.agent.host import Host
from turnwise.agent.modes.steps import worded
from turnwise.agent.oracle_rollout import foresee
from turnwise.agent.scripted_summary import recollect
from turnwise.data.trajectory import TurnKind
from turnwise.errors import WorldLost
from turnwise.world import ScriptedAction

MISTAKEN = "mistaken"
"""The scripted policy that makes deliberate errors."""
NOT_FORESEEN = ["go on"]
"""The steps in a plan or lesson when there is no oracle rollout."""


def act(episode: Episode, player: str, write: Callable[[ScriptedAction], str], generator: np.random.Generator) -> None:
    """Let the scripted policy `player` write the acting reply that the episode waits for."""
    decision = episode.decide("oracle" if player == MISTAKEN else player, generator)
    if decision is not None:
        _say(episode, _mistaken(episode, write, decision) if player == MISTAKEN else write(decision))


def think(episode: Episode, looks_ahead: bool) -> None:
    """Write the plan, lesson or summary that the episode waits for.

    With `looks_ahead`, plans and lessons contain the oracle's next steps; if the world fails in the oracle rollout, the
    episode is lost.
    """
    turns, asked = episode.turns, episode.ask
    if asked.kind is TurnKind.SUMMARY:
        thought = recollect(turns, asked.reply_tokens, episode.rules.format)
    else:
        try:
            steps = _foreseen(episode) if looks_ahead else NOT_FORESEEN
        except WorldLost as error:
            episode.lose(error)
            return
        thought = episode.rules.mode.demonstrated(turns, episode.attempt_ended, steps)
    _say(episode, episode.rules.format.write_thought(thought))


def _foreseen(episode: Episode) -> list[str]:
    """The oracle's next steps: from the current state, or from the start of the next attempt if this one has ended."""
    rules = episode.rules
    host = Host(rules.world, episode.task, episode.seed, rules.patience)
    is_over = episode.attempt_ended is not None
    turns, remaining = ([], episode.at_the_start) if is_over else (episode.turns, episode.remaining)
    actions = foresee(host, turns, remaining, episode.ask.reply_tokens)
    return worded(actions, " ".join(episode.read))


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
