"""The rules that all episodes of a rollout are played by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.agent.context import ConversationFrame
from turnwise.agent.formats import Format
from turnwise.agent.host import RetryPolicy
from turnwise.agent.modes import Mode, PlainMode
from turnwise.config.agent import ContextSection
from turnwise.world import Limits, Task, World

FULL, PLAIN = ContextSection(), PlainMode()


@dataclass(frozen=True)
class EpisodeConfig:
    """What all episodes of a rollout share."""

    world: World
    format: Format
    limits: Limits | None
    """Of every episode; None: of each task its own, as the world says."""
    patience: RetryPolicy
    frame: ConversationFrame | None = None
    """None for scripted players before there is a tokenizer: turns then hold text and no tokens."""
    instruction: str | None = None
    """Given to the policy as the system message, where it needs one."""
    token_budget: int = 0
    """Tokens that a segment may have, the next reply's maximum included. Used with a frame only."""
    reply_tokens: int = 0
    """The maximum length of one reply that acts."""
    context: ContextSection = FULL
    """What of the history a reply follows."""
    mode: Mode = PLAIN
    """What is asked for beside acting, and how often a task may be attempted."""
    invalid_limit: int | None = None
    """Invalid replies in a row, of those that act, after which an episode ends; None: no such limit."""
    horizon: int | None = None
    """Turns after which an episode is cut off at the latest, as `turnwise.curriculum.rules` sets it; None: no such
    limit."""

    def limits_of(self, task: Task) -> Limits:
        """The limits of one episode. The horizon shortens turns alone: the actions that a turn and an episode may have
        are the world's, and a task whose own limit is below the horizon keeps it.
        """
        limits = self.world.limits_of(task) if self.limits is None else self.limits
        return limits if self.horizon is None else replace(limits, turns=min(limits.turns, self.horizon))
