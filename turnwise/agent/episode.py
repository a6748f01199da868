"""One episode as a state machine: it asks for a reply, receives it, lets the world answer, and asks again or is over.

Within a segment the context only grows: context of turn k+1 = context of turn k + sampled reply + tokens of the next
observation; `turnwise.agent.context` says when another segment opens. The same class serves the engine's replies and
those of scripted players, so that every row of a table was played by the same rules.

The limit on turns counts replies that act. What else the policy is asked for (`turnwise.trajectory.TurnKind`) is a turn
of the trajectory like any other, with tokens and credit, and uses up none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from turnwise.agent.context import Ask, Frame, make_context
from turnwise.agent.formats import Format, Reading
from turnwise.agent.host import Host, Patience
from turnwise.agent.recollection import recollect
from turnwise.errors import WorldLost
from turnwise.sections import ContextSection
from turnwise.trajectory import Ending, Lost, Trajectory, Turn, TurnKind
from turnwise.world import Decision, Limits, Observation, Remaining, Reward, Step, Task, World

FULL = ContextSection()
AGENT_REWARDS: Mapping[str, Reward] = {
    "format": Reward("share of the episode's replies that could be read, given with the last turn", "outcome", 0.2),
    "invalid_turn": Reward("1 for a turn whose reply could not be read or held an illegal action", "turn", -0.1),
}
"""Rewards that the agent emits in every world, beside the world's own."""


@dataclass(frozen=True)
class Rules:
    """What all episodes of a rollout share."""

    world: World
    format: Format
    limits: Limits | None
    """Of every episode; None: of each task its own, as the world says."""
    patience: Patience
    frame: Frame | None = None
    """None for scripted players before there is a tokenizer: turns then hold text and no tokens."""
    instruction: str | None = None
    """Given to the policy as the system message, where it needs one."""
    token_budget: int = 0
    """Tokens that a segment may have, the next reply's maximum included. Used with a frame only."""
    reply_tokens: int = 0
    """The maximum length of one reply that acts."""
    context: ContextSection = FULL
    """What of the history a reply follows."""
    invalid_limit: int | None = None
    """Invalid replies in a row, of those that act, after which an episode ends; None: no such limit."""
    horizon: int | None = None
    """Turns after which an episode is cut off at the latest, as `turnwise.curriculum` sets it; None: no such limit."""

    def limits_of(self, task: Task) -> Limits:
        """The limits of one episode. The horizon shortens turns alone: the actions that a turn and an episode may have
        are the world's, and a task whose own limit is below the horizon keeps it.
        """
        limits = self.world.limits_of(task) if self.limits is None else self.limits
        return limits if self.horizon is None else replace(limits, turns=min(limits.turns, self.horizon))


class Episode:
    """One episode of one task, from its first observation to a `Trajectory` or a `Lost`."""

    def __init__(self, rules: Rules, task: Task, group: int, replica: int, seed: int) -> None:
        self.task, self.group, self.replica = task, group, replica
        self._rules = rules
        self._limits = rules.limits_of(task)
        self._host = Host(rules.world, task, seed, rules.patience)
        self._turns: list[Turn] = []
        self._context = make_context(rules.context, rules.frame, rules.instruction, rules.token_budget)
        self._unshown = ""
        self._actions_played = self._invalid_in_a_row = 0
        self._solved = False
        self._ending: Ending | None = None
        self._lost: Lost | None = None

    @property
    def over(self) -> bool:
        """Whether the episode needs no further reply."""
        return self._ending is not None or self._lost is not None

    @property
    def context(self) -> list[int]:
        """The tokens that the next reply follows."""
        return self._context.tokens

    @property
    def ask(self) -> Ask:
        """What the policy is asked for."""
        return self._ask

    @property
    def turns(self) -> list[Turn]:
        """The turns so far."""
        return self._turns

    @property
    def reply_tokens(self) -> int:
        """The most tokens that the next reply may have."""
        return self._ask.reply_tokens

    @property
    def remaining(self) -> Remaining:
        """What is left of the limits."""
        limits = self._limits
        actions = limits.actions if limits.actions is not None else limits.turns * limits.actions_per_turn
        acted = sum(turn.kind is TurnKind.ACT for turn in self._turns)
        return Remaining(limits.turns - acted, limits.actions_per_turn, actions - self._actions_played)

    def open(self) -> None:
        """Start the episode: after this it is over (lost) or waits for a reply."""
        try:
            first = self._host.reset()
        except WorldLost as error:
            self._lose(error)
            return
        self._observe(first, self._rules.format.opening)
        self._await_reply()

    def receive(self, text: str, tokens: tuple[int, ...], log_probabilities: tuple[float, ...], complete: bool) -> None:
        """Take a reply and let the world begin to answer it; `settle` collects the answer."""
        self._reading = self._read(text, complete)
        self._reply = (text, tokens, log_probabilities, complete)
        self._allowed = self._reading.actions[: self.remaining.actions]
        if self._allowed:
            self._host.start(self._allowed)

    def settle(self) -> None:
        """Wait for the world, record the turn, and end or wait for the next reply."""
        steps: list[Step] = []
        if self._allowed:
            try:
                steps = self._host.finish()
            except WorldLost as error:
                self._lose(error)
                return
        is_invalid = self._reading.invalid is not None or not all(step.valid for step in steps)
        if self._ask.kind is TurnKind.ACT:
            self._actions_played += len(steps)
            self._solved = steps[-1].success if steps else self._solved
            self._invalid_in_a_row = self._invalid_in_a_row + 1 if is_invalid else 0
            self._ending = self._ended(steps)
        self._record(steps, is_invalid)
        if steps:
            self._observe(steps[-1].observation, self._rules.format.observation)
        elif self._ask.kind is TurnKind.ACT:
            self._observation = self._unshown = self._reading.invalid or ""
        self._remember()
        self._await_reply()

    def decide(self, player: str, generator: np.random.Generator) -> Decision | None:
        """What a scripted player does now; None when the world was lost in asking."""
        try:
            return self._host.decide(player, generator, self.remaining)
        except WorldLost as error:
            self._lose(error)
            return None

    def recollect(self) -> None:
        """Let a scripted player write the summary that is asked for."""
        summary = recollect(self._turns, self._ask.reply_tokens)
        self.receive(self._rules.format.write_thought(summary), (), (), True)
        self.settle()

    def result(self) -> Trajectory | Lost:
        """What came of the episode, once it is over."""
        if self._lost is not None:
            return self._lost
        assert self._ending is not None, "the episode is not over"
        return Trajectory(self.task, self.group, self.replica, tuple(self._turns), self._ending, self._observation)

    def close(self) -> None:
        """Free the world, whether the episode is over or not."""
        self._host.close()

    def _observe(self, observation: Observation, word: Callable[[str], str]) -> None:
        self._observation = self._unshown = word(_storable(observation.text))
        self._state = None if observation.state is None else _storable(observation.state)

    def _read(self, text: str, complete: bool) -> Reading:
        form, acts = self._rules.format, self._ask.kind is TurnKind.ACT
        if not complete:
            wanted = form.form if acts else form.thought_form
            return Reading("", (), f"The reply was cut off at its maximum length. {wanted}")
        return form.read(text, self._limits.actions_per_turn) if acts else form.read_thought(text)

    def _remember(self) -> None:
        """Put the reply into the context: what does not act is escaped, since it may be said as an observation."""
        _, tokens, _, complete = self._reply
        note = "" if self._ask.kind is TurnKind.ACT else self._rules.format.escape(self._reading.thought)
        self._context.replied(tokens, complete, note)

    def _record(self, steps: list[Step], is_invalid: bool) -> None:
        text, tokens, log_probabilities, _ = self._reply
        rewards = _summed([step.rewards for step in steps])
        if is_invalid:
            rewards["invalid_turn"] = 1.0
        if self._ending is not None:
            rewards["format"] = self._share_of_readable_replies()
        self._turns.append(
            Turn(
                observation=self._shown,
                observation_tokens=self._message.tokens,
                reply=text,
                reply_tokens=tokens,
                log_probabilities=log_probabilities,
                thought=self._reading.thought,
                actions=self._allowed[: len(steps)],
                invalid=self._reading.invalid,
                effective=any(step.effective for step in steps),
                rewards=rewards,
                metrics=_summed([step.metrics for step in steps]),
                state=self._state if self._ask.kind is TurnKind.ACT else None,
                trained=self._ask.trained,
                kind=self._ask.kind,
                opens_segment=self._message.opens_segment,
                asked=self._ask.words,
            )
        )

    def _share_of_readable_replies(self) -> float:
        readable = sum(turn.invalid is None for turn in self._turns) + (self._reading.invalid is None)
        return readable / (len(self._turns) + 1)

    def _ended(self, steps: list[Step]) -> Ending | None:
        """How the episode has ended with this turn, if it has. A success is one however it ended."""
        limits = self._limits
        if steps and steps[-1].terminated:
            ending = Ending.FAILURE
        elif (steps and steps[-1].truncated) or (limits.actions is not None and self.remaining.actions <= 0):
            ending = Ending.ACTION_LIMIT
        elif self.remaining.turns <= 1:
            ending = Ending.TURN_LIMIT
        elif self._invalid_in_a_row == self._rules.invalid_limit:
            ending = Ending.INVALID_LIMIT
        else:
            return None
        return Ending.SUCCESS if self._solved else ending

    def _await_reply(self) -> None:
        """Ask for another reply, unless the episode has ended, or does so now because the reply might not fit."""
        if self._ending is None:
            ask, shown = self._next_ask(), self._unshown
            summary = self._context.summary_before(shown, ask)
            if summary is not None:
                ask, shown = summary, ""
            message = self._context.ask(shown, ask)
            if message is None:
                self._end_for_want_of_tokens()
            else:
                self._ask, self._shown, self._message = ask, shown, message
                self._unshown = self._unshown if summary is not None else ""
        if self._ending is not None:
            self._host.close()

    def _next_ask(self) -> Ask:
        """What the policy is asked for next."""
        return Ask(TurnKind.ACT, self._rules.reply_tokens)

    def _end_for_want_of_tokens(self) -> None:
        self._ending = Ending.SUCCESS if self._solved else Ending.TOKEN_BUDGET
        if self._turns:
            share = sum(turn.invalid is None for turn in self._turns) / len(self._turns)
            last = self._turns[-1]
            self._turns[-1] = replace(last, rewards={**last.rewards, "format": share})

    def _lose(self, error: WorldLost) -> None:
        self._lost = Lost(self.task, self.group, self.replica, _storable(str(error)))
        self._host.close()


def _storable(text: str) -> str:
    """A world's text as UTF-8 can hold it: web pages, read through JSON, have lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _summed(mappings: list[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total
