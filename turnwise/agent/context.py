"""Context policies: which part of the episode's history the next reply is conditioned on, within a token budget.

    full      the whole history; the context only grows
    window    the opening, the last k turns and the current message; older turns are left out
    summary   the opening, the policy's own summary of the earlier turns, and every message after it

With `full`, earlier replies may be shown without their thoughts, as a chat template such as Qwen3's renders them.

Where history is left out, the context is rewritten and a new **segment** opens: its first turn holds all the tokens
that its reply follows, so training sees exactly the context in which the reply was sampled. Replies that stay in a
window are copied token by token. What the policy wrote to remember (its last plan, its lessons, its last summary) is
repeated as text in the opening message of the new segment. The opening itself, which states the task, is always there.

**The budget is checked before the engine is called.** A context is used only if it leaves room for the longest reply of
its kind; under `summary` it must also leave room to ask for a summary afterwards, and for the longest summary. So the
model's context length never cuts a reply, and a summary always fits. Where nothing fits, the episode ends. Before that,
a window shows fewer turns, and a summary is asked for early.

This follows no paper. What differs from common implementations: a rewrite never changes what was sampled before it;
those turns stay a segment of their own, with the context that they had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.config.agent import ContextSection, Thoughts
from turnwise.data.trajectory import TurnKind

SUMMARY_WORDS = (
    "Summarise what happened so far in one thought, without an action. Your summary takes the place of these turns."
)
"""The request for a summary."""
REMEMBERED = {TurnKind.PLAN: "Your plan", TurnKind.REFLECT: "Your lesson", TurnKind.SUMMARY: "Your summary"}
"""How a new segment introduces what the policy wrote before it."""


class ConversationFrame(Protocol):
    """Turns the texts of a conversation into tokens; implemented by `turnwise.policy.tokenizer.ChatFrame`."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The end tokens of a reply; a reply that was not cut off ends with one of them."""

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """Tokens from the start up to where the first reply begins."""

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """Tokens between the end of `reply` and the start of the next one.

        `answers_call`: the observation is what the world answered to the reply's actions.
        """

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Tokens up to where the next reply begins, with the replies so far shown without their thoughts."""

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of a reply, without its end token."""


@dataclass(frozen=True)
class Ask:
    """A request to the policy for one reply."""

    kind: TurnKind
    reply_tokens: int
    """Maximum length of the reply, in tokens."""
    words: str = ""
    """Text that is shown to the policy after the observation."""
    trained: bool = True
    """Whether the update trains on the reply."""


@dataclass(frozen=True)
class ContextMessage:
    """The tokens put before a reply: those that the context grew by, or the whole context where a segment opens."""

    tokens: tuple[int, ...]
    opens_segment: bool


@dataclass(frozen=True)
class Exchange:
    """A message and the reply to it."""

    observation: str
    ask: Ask
    reply_tokens: tuple[int, ...]
    note: str
    """The thought of a reply that does not act, to be remembered; empty if the reply could not be read."""
    has_actions: bool = False
    """Whether the reply held actions, which the next observation answers."""


class Context(ABC):
    """The context of one episode. Call `ask` and `replied` alternately.

    Without a frame (scripted policies run before a tokenizer exists) it holds no tokens and enforces no budget.
    """

    def __init__(self, frame: ConversationFrame | None, instruction: str | None, budget: int) -> None:
        self._frame, self._instruction, self._budget = frame, instruction, budget
        self.tokens: list[int] = []
        """The tokens that the next reply follows. The list grows in place until the context is rewritten."""
        self._history: list[Exchange] = []
        self._lessons: list[Exchange] = []
        self._opening = ""
        self._begins = True
        self._last_ask: tuple[str, Ask] | None = None

    def ask(self, observation: str, ask: Ask) -> ContextMessage | None:
        """Add the message before the next reply and return it.

        Returns None and changes nothing where a reply of maximum length might not fit into the budget.
        """
        if self._begins:
            self._opening = observation
        for message in self._messages(observation, ask):
            length = len(message.tokens) + (0 if message.opens_segment else len(self.tokens))
            if self._frame is None or length + ask.reply_tokens + self._reserved_tokens(ask) <= self._budget:
                if message.opens_segment:
                    self.tokens = list(message.tokens)
                else:
                    self.tokens += message.tokens
                self._last_ask, self._begins = (observation, ask), False
                return message
        return None

    def replied(self, tokens: Sequence[int], note: str = "", *, has_actions: bool = False) -> None:
        """Add the reply to the last `ask`, token by token as sampled; `note` is its thought where it does not act.

        `has_actions`: it held actions, which the next observation answers.
        """
        assert self._last_ask is not None, "ask must be called first"
        observation, ask = self._last_ask
        self.tokens += tokens
        self._history.append(Exchange(observation, ask, tuple(tokens), note, has_actions))

    def begin_again(self) -> None:
        """Drop all turns, for another attempt at the task: the next message opens a segment. Lessons are kept."""
        self._lessons += [each for each in self._history if each.ask.kind is TurnKind.REFLECT]
        self._history = []
        self._begins = True

    def summary_before(self, observation: str, ask: Ask) -> Ask | None:
        """The request for a summary that must come before `ask`, or None. Its message has no observation."""
        return None

    @abstractmethod
    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        """Candidate messages before the next reply, best first; `ask` takes the first that fits."""

    def _reserved_tokens(self, ask: Ask) -> int:
        """Number of tokens that must stay free after a reply of maximum length."""
        return 0

    def _grown(self, observation: str, ask: Ask) -> ContextMessage:
        """The message that only extends the context; at the start of an attempt it is the opening."""
        if self._begins:
            return ContextMessage(self._open(observation, *self._notes([]), ask.words), True)
        return ContextMessage(self._go_on(_joined(observation, ask.words), self._history[-1]), False)

    def _open(self, *texts: str) -> tuple[int, ...]:
        return () if self._frame is None else self._frame.opening(self._instruction, _joined(*texts))

    def _go_on(self, text: str, before: Exchange) -> tuple[int, ...]:
        if self._frame is None:
            return ()
        return self._frame.continuation(text, before.reply_tokens, answers_call=before.has_actions)

    def _notes(self, left_out: Sequence[Exchange]) -> list[str]:
        """The texts kept from turns that are left out: all lessons, the last plan and the last summary."""
        exchanges = [each for each in (*self._lessons, *left_out) if each.note]
        last = {each.ask.kind: each for each in exchanges if each.ask.kind is not TurnKind.REFLECT}
        latest = [each for each in exchanges if each.ask.kind is TurnKind.REFLECT or last[each.ask.kind] is each]
        return [f"{REMEMBERED[each.ask.kind]}: {each.note}" for each in latest]


class FullContext(Context):
    """The whole history."""

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        yield self._grown(observation, ask)


class ThoughtlessContext(Context):
    """The whole history, with earlier replies shown without their thoughts.

    A reply without a thought only extends the context; any other changes it, so that a segment opens.
    """

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        if self._begins or self._frame is None:
            yield self._grown(observation, ask)
            return
        observations = [_joined(each.observation, each.ask.words) for each in self._history]
        rewritten = self._frame.without_thoughts(
            self._instruction,
            [*observations, _joined(observation, ask.words)],
            [each.reply_tokens for each in self._history],
        )
        length = len(self.tokens)
        if list(rewritten[:length]) == self.tokens:
            yield ContextMessage(rewritten[length:], False)
        else:
            yield ContextMessage(rewritten, True)


class WindowContext(Context):
    """The opening, the last `turns` turns (fewer where they do not fit) and the current message."""

    def __init__(self, frame: ConversationFrame | None, instruction: str | None, budget: int, *, turns: int) -> None:
        super().__init__(frame, instruction, budget)
        self._turns = turns

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        if self._begins or len(self._history) <= self._turns:
            yield self._grown(observation, ask)
        if not self._begins:
            for turns in range(min(self._turns, len(self._history) - 1), -1, -1):
                yield ContextMessage(self._last(turns, _joined(observation, ask.words)), True)

    def _last(self, turns: int, text: str) -> tuple[int, ...]:
        """A rewritten context with the last `turns` turns; the opening and the first kept turn share one message."""
        begin = len(self._history) - turns
        left_out, in_window = self._history[:begin], self._history[begin:]
        following = [*(_joined(each.observation, each.ask.words) for each in in_window), text]
        tokens = list(self._open(self._opening, *self._notes(left_out), following[0]))
        for each, text_between in zip(in_window, following[1:], strict=True):
            tokens += [*each.reply_tokens, *self._go_on(text_between, each)]
        return tuple(tokens)


class SummaryContext(Context):
    """The opening, the last summary, and all messages since.

    A summary is asked for after `every` acting turns, and earlier when it might no longer fit after the next reply.
    """

    def __init__(
        self, frame: ConversationFrame | None, instruction: str | None, budget: int, *, every: int, summary: Ask
    ) -> None:
        super().__init__(frame, instruction, budget)
        self._every, self._summary = every, summary
        request = () if frame is None else frame.continuation(summary.words, ())
        self._reserve = len(request) + summary.reply_tokens
        self._acted = 0

    def ask(self, observation: str, ask: Ask) -> ContextMessage | None:
        """As in `Context.ask`; also counts the acting turns since the last summary."""
        message = super().ask(observation, ask)
        if message is not None:
            self._acted = (0 if message.opens_segment else self._acted) + (ask.kind is TurnKind.ACT)
        return message

    def summary_before(self, observation: str, ask: Ask) -> Ask | None:
        """A summary if `every` acting turns have passed, or if the next reply might leave no room for one."""
        if self._begins or self._is_summarised():
            return None
        length = len(self.tokens) + len(self._grown(observation, ask).tokens) + ask.reply_tokens + self._reserve
        is_due = self._acted >= self._every or (self._frame is not None and length > self._budget)
        return self._summary if is_due else None

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        if self._begins or not self._is_summarised():
            yield self._grown(observation, ask)
        else:
            text = _joined(observation, ask.words)
            yield ContextMessage(self._open(self._opening, *self._notes(self._history), text), True)

    def _reserved_tokens(self, ask: Ask) -> int:
        return 0 if ask.kind is TurnKind.SUMMARY else self._reserve

    def _is_summarised(self) -> bool:
        return self._history[-1].ask.kind is TurnKind.SUMMARY


def make_context(
    section: ContextSection,
    frame: ConversationFrame | None,
    instruction: str | None,
    budget: int,
    thoughts: Thoughts = "kept",
) -> Context:
    """A fresh context of the kind that `section` names. `budget`: tokens, including those of the next reply.

    `thoughts` of earlier replies are kept, or with the policy `full` dropped.
    """
    match section.policy:
        case "full":
            return (FullContext if thoughts == "kept" else ThoughtlessContext)(frame, instruction, budget)
        case "window":
            assert section.turns is not None, "the section has seen to it"
            return WindowContext(frame, instruction, budget, turns=section.turns)
        case "summary":
            assert section.every is not None and section.summary_tokens is not None, "the section has seen to it"
            ask = Ask(TurnKind.SUMMARY, section.summary_tokens, SUMMARY_WORDS, section.train_summaries is not False)
            return SummaryContext(frame, instruction, budget, every=section.every, summary=ask)


def _joined(*texts: str) -> str:
    """The non-empty texts, joined by line breaks."""
    return "\n".join(text for text in texts if text)
