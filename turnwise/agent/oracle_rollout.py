"""Oracle rollout: the oracle's next actions from the current state, played in a separate environment.

Demonstrated plans and lessons are made from it. The separate environment has the same task and seed and is brought to
the same state by the same actions; the episode itself is not touched. The result is therefore what the oracle will do,
unless the demonstration's own noise (random or mistaken actions) intervenes. In a world that draws noise, the rollout
also contains that noise, which no policy can learn to predict: only the beginning of such a plan is reliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwise import seeding
from turnwise.agent.host import Host
from turnwise.data.trajectory import Turn
from turnwise.world import Remaining


def foresee(host: Host, turns: Sequence[Turn], remaining: Remaining, most_actions: int) -> list[str]:
    """The oracle's next actions after `turns` of an attempt, until it ends or there are at least `most_actions`.

    `host` must be fresh, with the episode's task and seed, and is closed afterwards. `remaining` is what is left of the
    attempt's limits. Raises WorldLost if the world fails.
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
