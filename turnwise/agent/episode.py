"""One episode as a state machine: request a reply, receive it, step the world, then request another or end.

Within a segment the context only grows: context of turn k+1 = context of turn k + sampled reply + tokens of the next
observation; `turnwise.agent.context` says when another segment opens. The same class serves replies of the engine and
of scripted policies, so every row of a results table was played by the same rules.

The turn limit counts acting replies only. Other replies (plans, lessons and summaries, see
`turnwise.data.trajectory.TurnKind`) are turns of the trajectory like any other, with tokens and credit, but do not
count towards the limit. Where `turnwise.agent.modes` allows several attempts at a task, each has an environment of its
own and the full limits; if the world fails in one attempt, the whole episode is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from turnwise.agent.context import Ask, make_context
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.episode_rewards import paid_for, rewards_of_whole, summed
from turnwise.agent.formats import ParsedReply
from turnwise.agent.host import Host
from turnwise.agent.modes.contract import words_to_act
from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, Turn, TurnKind
from turnwise.errors import WorldLost
from turnwise.world import Observation, Remaining, ScriptedAction, Step, Task

CUT_OFF = "The reply was cut off at its maximum length."
"""The answer to the first reply of an episode that was cut off, followed by the form of a reply."""
CUT_OFF_AGAIN = "Cut off again."
"""The answer to later ones: an untrained policy is cut off at every turn."""


class Episode:
    """One episode of one task, from its first observation to a `Trajectory` or a `LostEpisode`.

    Call `open`, then `receive` and `settle` for each reply until `over`, then `result`; `close` frees the world.
    """

    def __init__(self, rules: EpisodeConfig, task: Task, group: int, replica: int, seed: int) -> None:
        self.task, self.group, self.replica = task, group, replica
        self.rules, self.seed = rules, seed
        self._limits = limits = rules.limits_of(task)
        actions = limits.turns * limits.actions_per_turn if limits.actions is None else limits.actions
        self.at_the_start = Remaining(limits.turns, limits.actions_per_turn, actions)
        """The limits with which every attempt begins."""
        self._turns: list[Turn] = []
        self._context = make_context(rules.context, rules.frame, rules.instruction, rules.token_budget, rules.thoughts)
        self._ask = self._act = Ask(TurnKind.ACT, rules.reply_tokens)
        self._shown_observation = self._unshown_observation = ""
        self._explained: set[str] = set()
        """Reply forms that the policy has been reminded of after a reply that was cut off."""
        self._earlier_endings: list[Ending] = []
        self._ending: Ending | None = None
        self._lost_episode: LostEpisode | None = None
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        """Start an attempt with a fresh environment and the full limits."""
        self._host = Host(self.rules.world, self.task, self.seed, self.rules.patience)
        self._first_turn = len(self._turns)
        self._acted = self._actions_played = self._invalid_in_a_row = 0
        self._solved = False
        self.attempt_ended: Ending | None = None

    @property
    def over(self) -> bool:
        """Whether the episode needs no further reply."""
        return self._ending is not None or self._lost_episode is not None

    @property
    def context(self) -> list[int]:
        """The tokens that the next reply follows."""
        return self._context.tokens

    @property
    def ask(self) -> Ask:
        """The pending request to the policy."""
        return self._ask

    @property
    def turns(self) -> list[Turn]:
        """The turns of the current attempt, to be read."""
        return self._turns[self._first_turn :] if self._first_turn else self._turns

    @property
    def shown_observations(self) -> list[str]:
        """All observation texts that were shown in the current attempt so far."""
        return [*(turn.observation for turn in self.turns), self._shown_observation, self._observation]

    @property
    def remaining(self) -> Remaining:
        """What is left of the limits in the current attempt."""
        whole = self.at_the_start
        return Remaining(whole.turns - self._acted, whole.actions_per_turn, self._actions_left)

    @property
    def _actions_left(self) -> int:
        return self.at_the_start.actions - self._actions_played

    def open(self) -> None:
        """Start the episode; afterwards it is over (lost) or waits for a reply."""
        self._reset()

    def _reset(self) -> None:
        try:
            first = self._host.reset()
        except WorldLost as error:
            self.lose(error)
            return
        self._observe(first, self.rules.format.opening)
        self._await_reply()

    def receive(self, text: str, tokens: tuple[int, ...], log_probabilities: tuple[float, ...], complete: bool) -> None:
        """Parse a reply and start its actions in the world without waiting; `settle` collects the result.

        `complete` is False for a reply that was cut off at its maximum length.
        """
        self._reading = self._read(text, complete)
        self._reply = (text, tokens, log_probabilities)
        self._allowed = self._reading.actions[: self._actions_left]
        if self._allowed:
            self._host.start(self._allowed)

    def settle(self) -> None:
        """Wait for the world, record the turn, then end the episode or request the next reply."""
        steps: list[Step] = []
        if self._allowed:
            try:
                steps = self._host.finish()
            except WorldLost as error:
                self.lose(error)
                return
        is_invalid = self._reading.invalid is not None or not all(step.valid for step in steps)
        if self._ask.kind is TurnKind.ACT:
            self._actions_played += len(steps)
            self._solved = steps[-1].success if steps else self._solved
            self._invalid_in_a_row = self._invalid_in_a_row + 1 if is_invalid else 0
            self.attempt_ended = self._ended(steps)
        self._record(steps, is_invalid)
        if steps:
            self._observe(steps[-1].observation, self.rules.format.observation, paid_for(steps))
        elif self._ask.kind is TurnKind.ACT:
            self._show(self._reading.invalid or "", 0.0)
        elif self._ask.kind is not TurnKind.SUMMARY:
            self._unshown_observation = self._reading.invalid or ""
        self._remember()
        if self.attempt_ended is not None and self._ask.kind is TurnKind.REFLECT:
            self._attempt_again(self.attempt_ended)
        else:
            self._await_reply()

    def _attempt_again(self, ending: Ending) -> None:
        """Start the task again in a fresh environment; the new context opens with the lessons."""
        self._host.close()
        self._earlier_endings.append(ending)
        self._context.begin_again()
        self._begin_attempt()
        self._reset()

    def decide(self, baseline: str, generator: np.random.Generator) -> ScriptedAction | None:
        """The scripted action of `baseline` at this point; None if the world failed, which loses the episode."""
        try:
            return self._host.decide(baseline, generator, self.remaining)
        except WorldLost as error:
            self.lose(error)
            return None

    def result(self) -> Trajectory | LostEpisode:
        """The trajectory, or the record of a lost episode. The episode must be over."""
        if self._lost_episode is not None:
            return self._lost_episode
        assert self._ending is not None, "the episode is not over"
        return Trajectory(
            self.task,
            self.group,
            self.replica,
            tuple(self._turns),
            self._ending,
            self._observation,
            tuple(self._earlier_endings),
        )

    def close(self) -> None:
        """Close the environment, whether the episode is over or not."""
        self._host.close()

    def _observe(self, observation: Observation, word: Callable[[str], str], reward: float | None = None) -> None:
        self._show(word(_storable(observation.text)), reward)
        self._state = None if observation.state is None else _storable(observation.state)

    def _show(self, text: str, reward: float | None) -> None:
        """Show a text before the next reply; `reward`: the world's of the turn before, None before the first."""
        if self.rules.turn_frame and self.attempt_ended is None:
            text = framed(text, self._acted + 1, self._actions_left, reward)
        self._observation = self._unshown_observation = text

    def _read(self, text: str, complete: bool) -> ParsedReply:
        form, acts = self.rules.format, self._ask.kind is TurnKind.ACT
        if not complete:
            reminder = form.form if acts else form.thought_form
            is_explained = reminder in self._explained
            self._explained.add(reminder)
            return ParsedReply("", (), CUT_OFF_AGAIN if is_explained else f"{CUT_OFF} {reminder}")
        if not acts:
            return form.read_thought(text)
        allowed, drops = self._limits.actions_per_turn, self.rules.drop_surplus_actions
        reading = form.read(text, sys.maxsize if drops else allowed)
        return replace(reading, actions=reading.actions[:allowed]) if drops else reading

    def _remember(self) -> None:
        """Add the reply to the context. Notes are escaped, since they may reappear as text of an observation."""
        _, tokens, _ = self._reply
        note = "" if self._ask.kind is TurnKind.ACT else self.rules.format.escape(self._reading.thought)
        self._context.replied(tokens, note, has_actions=bool(self._allowed))

    def _record(self, steps: list[Step], is_invalid: bool) -> None:
        text, tokens, log_probabilities = self._reply
        rewards = summed([step.rewards for step in steps])
        if is_invalid:
            rewards["invalid_turn"] = 1.0
        self._acted += self._ask.kind is TurnKind.ACT
        self._turns.append(
            Turn(
                observation=self._shown_observation,
                observation_tokens=self._message.tokens,
                reply=text,
                reply_tokens=tokens,
                log_probabilities=log_probabilities,
                thought=self._reading.thought,
                actions=self._allowed[: len(steps)],
                invalid=self._reading.invalid,
                effective=any(step.effective for step in steps),
                rewards=rewards,
                metrics=summed([step.metrics for step in steps]),
                state=self._state if self._ask.kind is TurnKind.ACT else None,
                trained=self._ask.trained,
                kind=self._ask.kind,
                opens_segment=self._message.opens_segment,
                asked=self._ask.words,
                attempt=len(self._earlier_endings),
            )
        )

    def _ended(self, steps: list[Step]) -> Ending | None:
        """How this turn ends the attempt; None if it goes on. A solved task is a success whatever ended the attempt."""
        limits = self._limits
        if steps and steps[-1].terminated:
            ending = Ending.FAILURE
        elif (steps and steps[-1].truncated) or (limits.actions is not None and self._actions_left <= 0):
            ending = Ending.ACTION_LIMIT
        elif self._acted + 1 >= limits.turns:
            ending = Ending.TURN_LIMIT
        elif self._invalid_in_a_row == self.rules.invalid_limit:
            ending = Ending.INVALID_LIMIT
        else:
            return None
        return Ending.SUCCESS if self._solved else ending

    def _await_reply(self) -> None:
        """Request another reply; end the episode if the last attempt is over or the reply might not fit."""
        ask = self._next_ask()
        if ask is None or not self._append(ask):
            if self.attempt_ended is None:
                self.attempt_ended = Ending.SUCCESS if self._solved else Ending.TOKEN_BUDGET
            self._end(self.attempt_ended)

    def _next_ask(self) -> Ask | None:
        """The next request to the policy; None if the attempt has ended and there is no further one."""
        mode, turns = self.rules.mode, self.turns
        if self.attempt_ended is Ending.SUCCESS:
            return None
        if self.attempt_ended is not None:
            return mode.after_failure(len(self._earlier_endings))
        words = words_to_act(turns)
        return mode.before_acting(turns) or (replace(self._act, words=words) if words else self._act)

    def _append(self, ask: Ask) -> bool:
        """Put the request, or first one for a summary, into the context; False if the reply might not fit."""
        observation = self._unshown_observation
        summary = self._context.summary_before(observation, ask)
        if summary is not None:
            # The summary replaces the turns before it, the last observation included: show that again afterwards.
            self._unshown_observation = self._unshown_observation or self._observation
            ask, observation = summary, ""
        message = self._context.ask(observation, ask)
        if message is None:
            return False
        self._ask, self._shown_observation, self._message = ask, observation, message
        self._unshown_observation = self._unshown_observation if summary is not None else ""
        return True

    def _end(self, ending: Ending) -> None:
        """End the episode; the last turn gets the rewards that are of the whole of it."""
        self._ending = ending
        if self._turns:
            further, last = self.rules.further_rewards, self._turns[-1]
            whole = rewards_of_whole(self._turns, ending, further, self.rules.format.tags)
            self._turns[-1] = replace(last, rewards={**last.rewards, **whole})
        self._host.close()

    def lose(self, error: WorldLost) -> None:
        """End the episode as missing data (`LostEpisode`), without a trajectory."""
        self._lost_episode = LostEpisode(self.task, self.group, self.replica, _storable(error.message))
        self._host.close()


def _storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode; web pages read through JSON contain them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def framed(observation: str, turn: int, actions_left: int, reward: float | None) -> str:
    """The observation before turn `turn`, counted from 1, in RAGEN's frame (arXiv 2504.20073).

        Reward: -0.2
        Turn 2:
        # # # # # #
        ...
        You have 8 actions left.

    The reward is the sum of what the world paid for the turn before; the first turn has none. Differs from RAGEN: the
    state has no heading, and the form of a reply is stated in the instruction alone, not again at every turn.
    """
    before = [] if reward is None else [f"Reward: {reward:g}"]
    remaining = f"You have {actions_left} action{'' if actions_left == 1 else 's'} left."
    return "\n".join([*before, f"Turn {turn}:", observation, remaining])
