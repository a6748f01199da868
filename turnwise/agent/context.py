"""Context policies: what of an episode's history the next reply follows, and that it is sure to fit.

    full      everything that was said; the context only grows
    window    the opening, the last k turns, and what was said since; older turns are left out
    summary   the opening, the policy's own summary of what happened, and what was said since

Where history is left out, the context is written anew and a **segment** opens: all the tokens that the next reply
follows are then in its turn, so that whoever trains on it has exactly the context in which it was sampled. Replies that
stay in a window are copied token by token. What a policy wrote to be remembered (its last plan, its lessons, its last
summary) is said again in a new segment, as text of the opening message; the opening itself, which states the task, is
always there.

**The budget is kept before the engine is asked.** A context is used only if it leaves room for the longest reply of its
kind; under `summary` also for asking for a summary after that, and for its longest reply. So no reply is ever cut by
the model's length, and a summary always fits. Where nothing fits the episode is over. A window shows fewer turns before
it comes to that; a summary is asked for early.

No paper's rule is followed. What differs from the usual code: rewriting never changes what was sampled before it, which
stays a segment of its own, with the context that it had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.config.agent import ContextSection
from turnwise.data.trajectory import TurnKind

SUMMARY_WORDS = (
    "Summarise what happened so far in one thought, without an action. Your summary takes the place of these turns."
)
"""What asks for a summary."""
REMEMBERED = {TurnKind.PLAN: "Your plan", TurnKind.REFLECT: "Your lesson", TurnKind.SUMMARY: "Your summary"}
"""How a new segment introduces what the policy wrote before it."""


class ConversationFrame(Protocol):
    """How texts become tokens of a conversation: `turnwise.policy.tokenizer.ChatFrame` keeps this."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply: one that was not cut off ends with one of them."""

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """Tokens from the start up to where the first reply begins."""

    def continuation(self, observation: str, reply_complete: bool) -> tuple[int, ...]:
        """Tokens between the end of a reply and the start of the next."""

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of a reply, without its end token."""


@dataclass(frozen=True)
class Ask:
    """What the agent asks the policy for."""

    kind: TurnKind
    reply_tokens: int
    """The longest reply."""
    words: str = ""
    """What the policy is told beside the observation."""
    trained: bool = True


@dataclass(frozen=True)
class ContextMessage:
    """What is put before a reply: the tokens that the context grew by, or, where a segment opens, all of it."""

    tokens: tuple[int, ...]
    opens_segment: bool


@dataclass(frozen=True)
class Exchange:
    """A message and the reply to it."""

    observation: str
    ask: Ask
    reply_tokens: tuple[int, ...]
    complete: bool
    note: str
    """What a reply that does not act says, to be remembered; empty for one that could not be read."""


class Context(ABC):
    """The context of one episode. Call `ask`, then `replied`, in turn.

    Without a frame, as scripted players have it before there is a tokenizer, it has no tokens and no budget.
    """

    def __init__(self, frame: ConversationFrame | None, instruction: str | None, budget: int) -> None:
        self._frame, self._instruction, self._budget = frame, instruction, budget
        self.tokens: list[int] = []
        """What the next reply follows."""
        self._history: list[Exchange] = []
        self._lessons: list[Exchange] = []
        self._opening = ""
        self._begins = True
        self._asked: tuple[str, Ask] | None = None

    def ask(self, observation: str, ask: Ask) -> ContextMessage | None:
        """Put a message before the next reply. None, and nothing changes, where the longest reply might not fit."""
        if self._begins:
            self._opening = observation
        for message in self._messages(observation, ask):
            context = [*([] if message.opens_segment else self.tokens), *message.tokens]
            if self._frame is None or len(context) + ask.reply_tokens + self._kept_free(ask) <= self._budget:
                self.tokens = context
                self._asked, self._begins = (observation, ask), False
                return message
        return None

    def replied(self, tokens: Sequence[int], complete: bool, note: str = "") -> None:
        """Take the reply to what was asked, as it was sampled; `note` is what it says where it does not act."""
        assert self._asked is not None, "ask must be called first"
        observation, ask = self._asked
        self.tokens = [*self.tokens, *tokens]
        self._history.append(Exchange(observation, ask, tuple(tokens), complete, note))

    def begin_again(self) -> None:
        """Leave out all turns, for another attempt: the next message opens a segment. Lessons are remembered."""
        self._lessons += [each for each in self._history if each.ask.kind is TurnKind.REFLECT]
        self._history = []
        self._begins = True

    def summary_before(self, observation: str, ask: Ask) -> Ask | None:
        """The summary to be asked for before this, if one is due. Its message has no observation."""
        return None

    @abstractmethod
    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        """The messages that might be put before the next reply, best first."""

    def _kept_free(self, ask: Ask) -> int:
        """Tokens that must be free after the longest reply."""
        return 0

    def _grown(self, observation: str, ask: Ask) -> ContextMessage:
        """The context as it is, and what was said since: at the beginning the opening."""
        if self._begins:
            return ContextMessage(self._open(observation, *self._notes([]), ask.words), True)
        return ContextMessage(self._go_on(_joined(observation, ask.words), self._history[-1].complete), False)

    def _open(self, *texts: str) -> tuple[int, ...]:
        return () if self._frame is None else self._frame.opening(self._instruction, _joined(*texts))

    def _go_on(self, text: str, complete: bool) -> tuple[int, ...]:
        return () if self._frame is None else self._frame.continuation(text, complete)

    def _notes(self, left_out: Sequence[Exchange]) -> list[str]:
        """What is still said of turns that are left out: all lessons, and the last plan and summary."""
        noted = [each for each in (*self._lessons, *left_out) if each.note]
        last = {each.ask.kind: each for each in noted if each.ask.kind is not TurnKind.REFLECT}
        kept = [each for each in noted if each.ask.kind is TurnKind.REFLECT or last[each.ask.kind] is each]
        return [f"{REMEMBERED[each.ask.kind]}: {each.note}" for each in kept]


class FullContext(Context):
    """Everything that was said."""

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        yield self._grown(observation, ask)


class WindowContext(Context):
    """The opening, the last `turns` turns, and what was said since: fewer of them where they do not fit."""

    def __init__(self, frame: ConversationFrame | None, instruction: str | None, budget: int, *, turns: int) -> None:
        super().__init__(frame, instruction, budget)
        self._turns = turns

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        if self._begins or len(self._history) <= self._turns:
            yield self._grown(observation, ask)
        if not self._begins:
            for shown in range(min(self._turns, len(self._history) - 1), -1, -1):
                yield ContextMessage(self._last(shown, _joined(observation, ask.words)), True)

    def _last(self, shown: int, text: str) -> tuple[int, ...]:
        """A whole context with the last `shown` turns: the first of them follows the opening in one message."""
        begin = len(self._history) - shown
        left_out, kept = self._history[:begin], self._history[begin:]
        following = [*(_joined(each.observation, each.ask.words) for each in kept), text]
        tokens = list(self._open(self._opening, *self._notes(left_out), following[0]))
        for each, said in zip(kept, following[1:], strict=True):
            tokens += [*each.reply_tokens, *self._go_on(said, each.complete)]
        return tuple(tokens)


class SummaryContext(Context):
    """The opening, the last summary, and what was said since. A summary is asked for every `every` turns that act, and
    before a reply after which it might not fit any more.
    """

    def __init__(
        self, frame: ConversationFrame | None, instruction: str | None, budget: int, *, every: int, summary: Ask
    ) -> None:
        super().__init__(frame, instruction, budget)
        self._every, self._summary = every, summary
        self._reserve = len(self._go_on(summary.words, False)) + summary.reply_tokens
        self._acted = 0

    def ask(self, observation: str, ask: Ask) -> ContextMessage | None:
        """As every context does; counts the turns since the last summary."""
        message = super().ask(observation, ask)
        if message is not None:
            self._acted = (0 if message.opens_segment else self._acted) + (ask.kind is TurnKind.ACT)
        return message

    def summary_before(self, observation: str, ask: Ask) -> Ask | None:
        """A summary, where enough turns have passed, or this would leave no room for one."""
        if self._begins or self._is_summarised():
            return None
        grown = len(self.tokens) + len(self._grown(observation, ask).tokens) + ask.reply_tokens + self._reserve
        is_due = self._acted >= self._every or (self._frame is not None and grown > self._budget)
        return self._summary if is_due else None

    def _messages(self, observation: str, ask: Ask) -> Iterator[ContextMessage]:
        if self._begins or not self._is_summarised():
            yield self._grown(observation, ask)
        else:
            text = _joined(observation, ask.words)
            yield ContextMessage(self._open(self._opening, *self._notes(self._history), text), True)

    def _kept_free(self, ask: Ask) -> int:
        return 0 if ask.kind is TurnKind.SUMMARY else self._reserve

    def _is_summarised(self) -> bool:
        return self._history[-1].ask.kind is TurnKind.SUMMARY


def make_context(
    section: ContextSection, frame: ConversationFrame | None, instruction: str | None, budget: int
) -> Context:
    """The context of an episode under the policy that a section names. `budget`: tokens, the next reply's included."""
    match section.policy:
        case "full":
            return FullContext(frame, instruction, budget)
        case "window":
            assert section.turns is not None, "the section has seen to it"
            return WindowContext(frame, instruction, budget, turns=section.turns)
        case "summary":
            assert section.every is not None and section.summary_tokens is not None, "the section has seen to it"
            ask = Ask(TurnKind.SUMMARY, section.summary_tokens, SUMMARY_WORDS, section.train_summaries is not False)
            return SummaryContext(frame, instruction, budget, every=section.every, summary=ask)


def _joined(*texts: str) -> str:
    """Texts that are there, each beginning on a line of its own."""
    return "\n".join(text for text in texts if text)
