"""The settings that all episodes of a rollout share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.agent.context import ConversationFrame
from turnwise.agent.formats import Format
from turnwise.agent.host import RetryPolicy
from turnwise.agent.modes import Mode, PlainMode
from turnwise.config.agent import ContextSection, Thoughts
from turnwise.world import Limits, Task, World

FULL, PLAIN = ContextSection(), PlainMode()


@dataclass(frozen=True)
class EpisodeConfig:
    """Settings of all episodes of a rollout."""

    world: World
    format: Format
    limits: Limits | None
    """Limits of every episode; None: each task has its own, from `World.limits_of`."""
    patience: RetryPolicy
    frame: ConversationFrame | None = None
    """Turns texts into tokens. None for scripted policies without a tokenizer: turns then hold text and no tokens."""
    instruction: str | None = None
    """System message for the policy; None if it needs none."""
    token_budget: int = 0
    """Maximum tokens of a segment, including the maximum length of the next reply. Used only with a frame."""
    reply_tokens: int = 0
    """Maximum length of an acting reply, in tokens."""
    context: ContextSection = FULL
    """The context policy: which part of the history a reply follows."""
    thoughts: Thoughts = "kept"
    """Whether earlier replies are shown with their thoughts."""
    mode: Mode = PLAIN
    """Which replies are requested besides acting ones, and how often a task may be attempted."""
    invalid_limit: int | None = None
    """Consecutive invalid acting replies after which an episode ends; None: no such limit."""
    turn_frame: bool = False
    """Whether observations are shown in the frame of `turnwise.agent.episode.framed`."""
    drop_surplus_actions: bool = False
    """Whether a reply with too many actions is cut to those that a turn allows, instead of being invalid."""
    further_rewards: tuple[str, ...] = ()
    """The agent's rewards that are recorded in addition to those of every episode: see `GIVEN_ON_REQUEST`."""
    horizon: int | None = None
    """Maximum turns of an episode, as `turnwise.curriculum.rules` sets it; None: no such limit."""

    def limits_of(self, task: Task) -> Limits:
        """The limits of an episode of this task.

        The horizon lowers only the number of turns: actions per turn and per episode stay as the limits have them, and
        a task whose own turn limit is below the horizon keeps it.
        """
        limits = self.world.limits_of(task) if self.limits is None else self.limits
        return limits if self.horizon is None else replace(limits, turns=min(limits.turns, self.horizon))
