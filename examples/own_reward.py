"""A reward of one's own, and a monitor of it: short replies are paid, and how long they are is watched.

turnwise check own_reward:brevity          (in this folder)
python examples/own_reward.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

import turnwise as tw

Tokens = Annotated[int, Field(ge=1)]


def brevity(trajectory: tw.Trajectory, *, most: Tokens = 12) -> list[float]:
    """1 for every reply of at most so many tokens."""
    return [float(len(turn.reply_tokens) <= most) for turn in trajectory.turns]


def longest_reply(trajectories: Sequence[tw.Trajectory], rewards: Sequence[float]) -> float | None:
    """The tokens of the longest reply of an iteration."""
    return max((float(len(turn.reply_tokens)) for each in trajectories for turn in each.turns), default=None)


def main() -> None:
    """Check the reward, train with it, and print what it paid."""
    print("\n".join(tw.check_reward("own_reward:brevity", {"most": 12}).lines()))
    experiment = tw.load(
        Path(__file__).with_name("small.yaml"),
        {
            "rewards": {
                "goal": {"level": "outcome", "weight": 1.0},
                "brevity": {
                    "level": "turn",
                    "weight": 0.1,
                    "function": "own_reward:brevity",
                    "options": {"most": 12},
                },
            },
            "monitors": {"added": {"longest_reply": "own_reward:longest_reply"}},
            "ablation": {"name": "own-reward", "variants": ["grpo-or"]},
        },
    )
    done = tw.ablation(experiment)
    curves = done.curves()
    print(curves[["iteration", "rollout/reward/brevity", "monitor/longest_reply"]].to_string(index=False))
    print(f"open {done.report.page}")


if __name__ == "__main__":
    main()
