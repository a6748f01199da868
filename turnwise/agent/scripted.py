"""What scripted players write: decisions as replies, errors on purpose, and thoughts where they are asked for one.

A small policy cannot plan, reflect or summarise as it never saw it done. So demonstrations hold plans and lessons that
are true (they say what the oracle does next, see `turnwise.agent.oracle_rollout`, and what was refused), and errors to
reflect on: the player `mistaken` means what the oracle does and gets the reply wrong.
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
"""The player that makes errors on purpose."""
NOT_FORESEEN = ["go on"]
"""The step of a player that does not look ahead."""


def act(episode: Episode, player: str, write: Callable[[ScriptedAction], str], generator: np.random.Generator) -> None:
    """Let a scripted player write the acting reply that the episode waits for."""
    decision = episode.decide("oracle" if player == MISTAKEN else player, generator)
    if decision is not None:
        _say(episode, _mistaken(episode, write, decision) if player == MISTAKEN else write(decision))


def think(episode: Episode, looks_ahead: bool) -> None:
    """Let a scripted player write the thought that the episode waits for: a true one, where it looks ahead."""
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
    """The oracle's next steps: from here on, or in the next attempt where this one has ended."""
    rules = episode.rules
    host = Host(rules.world, episode.task, episode.seed, rules.patience)
    is_over = episode.attempt_ended is not None
    turns, remaining = ([], episode.at_the_start) if is_over else (episode.turns, episode.remaining)
    actions = foresee(host, turns, remaining, episode.ask.reply_tokens)
    return worded(actions, " ".join(episode.read))


def _mistaken(episode: Episode, write: Callable[[ScriptedAction], str], decision: ScriptedAction) -> str:
    """The reply with an error: an action that stammers, which no world of free actions allows, or no action."""
    reply = write(decision)
    if episode.rules.world.verbs is None:
        action = decision.actions[0]
        return write(ScriptedAction(decision.thought, (f"{action.split()[0]} {action}",)))
    return reply[: episode.rules.format.action_begins(reply)]


def _say(episode: Episode, reply: str) -> None:
    episode.receive(reply, (), (), True)
    episode.settle()
