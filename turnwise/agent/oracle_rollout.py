"""Foresight: what the oracle would do from here on, played to the end in an environment of its own.

Demonstrated plans and lessons are made of it. The environment has the same task and seed, and is brought to the same
point by the same actions; the episode itself is not touched. So what is foreseen is what the oracle then does, unless a
demonstration's noise comes between. In a world that draws noise of its own, that noise is foreseen as well, which no
policy can learn: a plan is then longer than anybody could know, and right at its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwise import seeding
from turnwise.agent.host import Host
from turnwise.data.trajectory import Turn
from turnwise.world import Remaining


def foresee(host: Host, turns: Sequence[Turn], remaining: Remaining, most_actions: int) -> list[str]:
    """The oracle's next actions after these turns of an attempt, until it ends or there are `most_actions` of them.

    `host` is a fresh one, of the episode's task and seed, and is closed; `remaining` is what is left of the episode's
    limits. Raises WorldLost.
    """
    foreseen: list[str] = []
    try:
        host.reset()
        for turn in turns:
            if turn.actions:
                host.start(turn.actions)
                host.finish()
        while remaining.turns > 0 and remaining.actions > 0 and len(foreseen) < most_actions:
            decision = host.decide("oracle", seeding.generator(0, "foresight"), remaining)
            host.start(decision.actions[: remaining.actions])
            steps = host.finish()
            foreseen += decision.actions[: len(steps)]
            if steps[-1].terminated or steps[-1].truncated or not steps[-1].valid:
                break
            remaining = replace(remaining, turns=remaining.turns - 1, actions=remaining.actions - len(steps))
    finally:
        host.close()
    return foreseen
