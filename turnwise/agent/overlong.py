"""The overlong penalty as a reward: a reply that comes close to the longest allowed costs something.

    rewards:
      overlong: { level: turn, weight: 1.0, function: overlong, options: { longest: 512, buffer: 128 } }

    penalty(reply of l tokens) = -min(max(l - (longest - buffer), 0) / buffer, 1)

0 up to longest - buffer tokens, then falling in a line to -1 at `longest`; the weight of the reward is the factor. Each
turn's reply is judged by itself. `level: turn` pays it where it was written; `level: outcome` charges the episode.

Paper: DAPO's soft overlong punishment (arXiv 2503.14476, equation 13); verl's `overlong_buffer`, TRL's
`get_soft_overlong_punishment`. What differs: they have one reply per prompt; beyond `longest`, which no sampled reply
is, the paper's is -1 as well, and verl's goes on falling. Bias: it is a reward, and changes what is wanted.
"""

from __future__ import annotations

from typing import Any

from turnwise.agent.added_rewards import RewardFunction
from turnwise.config.quantities import Tokens
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError


def penalties(trajectory: Trajectory, *, longest: Tokens, buffer: Tokens) -> list[float]:
    """The penalty of each turn's reply, from -1 to 0."""
    beyond = (len(turn.reply_tokens) - (longest - buffer) for turn in trajectory.turns)
    return [-min(max(tokens, 0) / buffer, 1.0) for tokens in beyond]


def _require_buffer(**options: Any) -> None:
    if options["buffer"] > options["longest"]:
        raise ConfigurationError(
            f"buffer must be at most longest, the most tokens of a reply; found {options['buffer']} and "
            f"{options['longest']}",
            "TW-reversed-bounds",
        )


overlong = RewardFunction(penalties, require=_require_buffer)
