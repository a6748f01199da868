"""The section `agent` of `params.yaml`, and the rewards that the agent itself emits in every world."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from turnwise.config.quantities import Count, Number, Options, Tokens
from turnwise.config.schema import RewardSection, Section
from turnwise.errors import ConfigurationError
from turnwise.world import Reward, World


def _require_options(section: Section, key: str, needed: Set[str], own_options: Set[str], what: str = "policy") -> None:
    """Raise ConfigurationError unless a section has the options that its `key` needs, and no others than it reads."""
    which, options = getattr(section, key), {name for name, value in section if name != key and value is not None}
    if missing := sorted(needed - options):
        raise ConfigurationError(
            f"the {what} {which!r} must have {' and '.join(missing)}; found none", "TW-missing-option"
        )
    if unread := sorted(options - own_options):
        raise ConfigurationError(
            f"the {what} {which!r} does not read {' and '.join(unread)}: leave it out, or null", "TW-unread-option"
        )


class ContextSection(Section):
    """What of an episode's history the next reply follows: see `turnwise.agent.context`."""

    policy: Literal["full", "window", "summary"] = "full"
    """`full`: all of it. `window`: its last turns. `summary`: a summary by the policy, and the turns since."""
    turns: Count | None = None
    """For `window`: how many of the last turns stay."""
    every: Count | None = None
    """For `summary`: turns that act until the policy is asked for a summary; earlier where it would not fit later."""
    summary_tokens: Tokens | None = None
    """For `summary`: the longest summary."""
    train_summaries: bool | None = None
    """For `summary`: whether the update trains on summaries; true unless said otherwise."""

    @model_validator(mode="after")
    def _require_own_options(self) -> Self:
        needed = {"full": set[str](), "window": {"turns"}, "summary": {"every", "summary_tokens"}}[self.policy]
        _require_options(self, "policy", needed, needed | ({"train_summaries"} if self.policy == "summary" else set()))
        return self


Sign = Literal["invalid", "ineffective", "negative"]


class ModeSection(Section):
    """What the policy is asked for beside acting: see `turnwise.agent.modes`."""

    name: Literal["plain", "plan", "reflect"] = "plain"
    """`plain`: nothing. `plan`: a plan, which is revised. `reflect`: a lesson after a turn that went wrong."""
    tokens: Tokens | None = None
    """For `plan` and `reflect`: the longest plan or lesson. A longer one is cut off, and counts as unreadable."""
    train_thoughts: bool | None = None
    """For `plan` and `reflect`: whether the update trains on plans or lessons; true unless said otherwise."""
    signs: Annotated[tuple[Sign, ...], Field(strict=False)] | None = None
    """For `plan` and `reflect`: the signs of trouble in a turn after which a plan is revised or a lesson is written.
    Unless said otherwise `invalid`, `ineffective` and `negative` for plans, `invalid` and `negative` for lessons."""
    negative_below: Number | None = None
    """For `plan` and `reflect`: what a world's rewards of a turn must sum to less than to be a negative sign; 0 unless
    said otherwise. Lower for worlds that charge for every action."""
    every: Count | None = None
    """For `plan`: turns that act until the plan is revised. null: only when it failed."""
    attempts: Count | None = None
    """For `reflect`: how often a task may be attempted, each time with the lessons so far; 1 unless said otherwise."""

    @model_validator(mode="after")
    def _require_own_options(self) -> Self:
        common = {"tokens", "train_thoughts", "signs", "negative_below"}
        own_options = {"plain": set[str](), "plan": {*common, "every"}, "reflect": {*common, "attempts"}}[self.name]
        _require_options(self, "name", own_options & {"tokens"}, own_options, what="mode")
        return self


Thoughts = Literal["kept", "dropped"]
NATIVE_TOOLS = "native-tools"


class Agent(Section):
    """How a world's texts become a policy's context, and its replies actions."""

    format: str
    """How a world is worded and a reply is written: `line`, `native-tools`, `react`, `search`, `think-answer` or
    `tool-json`."""
    instruction: bool
    """Whether the policy is given the world's instruction. A policy made here never needs it."""
    examples: Annotated[int, Field(ge=0, le=100)] = 0
    """Worked episodes of training tasks, played by the world's oracle, that the policy is shown before its task: see
    `turnwise.agent.examples`."""
    maximum_reply_tokens: Tokens
    """A longer reply is cut off, and counts as unreadable."""
    turn_frame: bool = False
    """Whether observations say which turn it is, how many actions are left, and what the turn before was paid: see
    `turnwise.agent.episode.framed`."""
    surplus_actions: Literal["refuse", "drop"] = "refuse"
    """A reply with more actions than a turn allows: `refuse` reads it as invalid, so that none is played; `drop` plays
    as many as are allowed, in order, as RAGEN does."""
    context: ContextSection = ContextSection()
    """What the policy is shown of what happened before."""
    thoughts: Thoughts = "kept"
    """Whether the context keeps the thoughts of earlier replies, or drops everything up to `</think>`, as Qwen3's chat
    template does. Dropping changes the history, so that each turn after a thought is a segment of its own."""
    invalid_limit: Count | None = None
    """Replies in a row that cannot be read, or hold an illegal action, after which the episode ends. null: none. Only
    replies that are to act count. It is not truncated: nothing is owed for what might have followed."""
    mode: ModeSection = ModeSection()
    """What the policy is asked for beside acting."""
    context_tokens: Tokens
    """The model's context: an episode whose next reply might not fit ends as truncated, `ending/token_budget`."""

    @model_validator(mode="after")
    def _require_thoughts_to_drop(self) -> Self:
        if self.thoughts == "dropped" and (self.context.policy != "full" or self.mode.name != "plain"):
            raise ConfigurationError(
                f"thoughts: dropped needs context.policy full and mode.name plain; found {self.context.policy} and "
                f"{self.mode.name}, which show earlier thoughts otherwise: set thoughts to kept",
                "TW-conflicting-options",
            )
        return self

    @model_validator(mode="after")
    def _require_plain_examples(self) -> Self:
        options = (self.instruction, self.mode.name, self.thoughts)
        if self.examples and options != (True, "plain", "kept"):
            raise ConfigurationError(
                "examples need instruction: true, mode.name plain, and thoughts kept; found "
                f"{str(options[0]).lower()}, {options[1]}, {options[2]}: change these, or set examples to 0",
                "TW-conflicting-options",
            )
        return self

    @model_validator(mode="after")
    def _require_answers_to_calls(self) -> Self:
        """Refuse what shows an answer in the user's words, or not at all, where a template expects the role `tool`."""
        options = (self.mode.name, self.context.policy, self.thoughts)
        if self.format == NATIVE_TOOLS and (options[0] != "plain" or options[1] == "summary" or options[2] != "kept"):
            raise ConfigurationError(
                "format: native-tools needs mode.name plain, context.policy full or window, and thoughts kept; found "
                f"{', '.join(options)}: change these, or set format to tool-json",
                "TW-conflicting-options",
            )
        return self

    @field_validator("context_tokens")
    @classmethod
    def _require_room(cls, tokens: int, info: ValidationInfo) -> int:
        if not {"maximum_reply_tokens", "mode", "context"} <= info.data.keys():
            return tokens
        reply = max(info.data["maximum_reply_tokens"], info.data["mode"].tokens or 0)
        summary = info.data["context"].summary_tokens or 0
        if reply + summary >= tokens:
            raise ConfigurationError(
                "must hold more than the longest reply and, where there is one, the longest summary; found "
                f"{tokens} for {reply} and {summary} tokens: raise it, or lower agent.maximum_reply_tokens",
                "TW-short-context",
            )
        return tokens


ALWAYS_GIVEN: Mapping[str, Reward] = {
    "format": Reward("share of the episode's replies that could be read, given with the last turn", "outcome", 0.2),
    "invalid_turn": Reward("1 for a turn whose reply could not be read or held an illegal action", "turn", -0.1),
}
"""Rewards that every episode records, whatever they weigh."""

GIVEN_ON_REQUEST: Mapping[str, Reward] = {
    "tags": Reward("how well replies use the format's tags, from 0 to 1, given with the last turn", "outcome", 0.2),
    "unfinished": Reward("1 for an episode that a limit ended, given with its last turn", "outcome", -1.0),
}
"""Rewards that episodes record where the section `rewards` names them, even with a weight of 0: an experiment that does
not ask for one has the same episodes as if there were none."""

AGENT_REWARDS: Mapping[str, Reward] = {**ALWAYS_GIVEN, **GIVEN_ON_REQUEST}


def requested_rewards(names: Collection[str], world: World) -> tuple[str, ...]:
    """Those of `GIVEN_ON_REQUEST` among the names; a world's reward of the same name is the world's."""
    return tuple(name for name in GIVEN_ON_REQUEST if name in names and name not in world.rewards)


class AddedReward(Section):
    """A reward of one's own, as the stages that play episodes read it: see `turnwise.agent.added_rewards`."""

    function: str
    options: Options


def added_rewards(rewards: Mapping[str, RewardSection]) -> dict[str, AddedReward]:
    """The rewards of one's own, by name: those that have a function."""
    return {
        name: AddedReward(function=section.function, options=section.options)
        for name, section in rewards.items()
        if section.function is not None
    }
