"""Worked examples: short episodes of training tasks that a policy is shown before its own task, `agent.examples`.

They are messages of the conversation, in the chat template's own frame: what the world said as the user's, the oracle's
replies, in the agent's format, as the assistant's; then comes the policy's own task. All episodes begin with the same
tokens, which are not computed for each reply: vLLM keeps them in its prefix cache, in blocks of 128 tokens, the
embedded engine in each of its slots, and the learner computes them once for each group. Nothing of an example is
trained on.

This is few-shot prompting (Brown et al. 2020, arXiv 2005.14165); what differs is that the examples are whole episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from turnwise.config.schema import Section
from turnwise.data.trajectory import Trajectory

if TYPE_CHECKING:
    from turnwise.data.conversations import ConversationExchange
    from turnwise.policy.tokenizer import ChatFrame


class ExampleTurn(Section):
    """One turn of an example: what was shown, and the reply to it."""

    observation: str
    reply: str
    answers_call: bool
    """Whether the observation is what the world answered to the reply before, of the same example."""


class WorkedExample(Section):
    """One episode, as its policy would see it."""

    turns: tuple[ExampleTurn, ...]

    @classmethod
    def of(cls, trajectory: Trajectory) -> WorkedExample:
        """The turns of an episode. What the world says to its last action is left out."""
        before = (None, *trajectory.turns)
        return cls(
            turns=tuple(
                ExampleTurn(
                    observation=turn.observation,
                    reply=turn.reply,
                    answers_call=earlier is not None and bool(earlier.actions),
                )
                for earlier, turn in zip(before, trajectory.turns, strict=False)
            )
        )


def tokens_of_exchanges(
    frame: ChatFrame, instruction: str | None, exchanges: Iterable[ExampleTurn | ConversationExchange]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The tokens of a conversation, exchange by exchange: those before the reply, and the reply's."""
    reply: tuple[int, ...] | None = None
    for each in exchanges:
        before = (
            frame.opening(instruction, each.observation)
            if reply is None
            else frame.continuation(each.observation, reply, answers_call=each.answers_call)
        )
        reply = frame.reply(each.reply)
        yield before, reply


class FrameWithExamples:
    """A conversation's frame whose opening holds worked examples between the instruction and the first observation."""

    def __init__(self, frame: ChatFrame, examples: Sequence[WorkedExample]) -> None:
        self._frame, self.end_tokens = frame, frame.end_tokens
        self._turns = [turn for example in examples for turn in example.turns]
        self._before: dict[str | None, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """By instruction: the tokens up to the end of the last example, and those of its last reply."""

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """Tokens from the start, through the examples, up to where the first reply begins."""
        if system not in self._before:
            self._before[system] = self._rendered(system)
        tokens, reply = self._before[system]
        return (*tokens, *self._frame.continuation(observation, reply))

    def _rendered(self, system: str | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pairs = list(tokens_of_exchanges(self._frame, system, self._turns))
        return tuple(token for before, reply in pairs for token in (*before, *reply)), pairs[-1][1]

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """That of the frame."""
        return self._frame.continuation(observation, reply, answers_call=answers_call)

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Never called: the section `agent` refuses examples where thoughts are dropped."""
        raise NotImplementedError("worked examples are shown whole")

    def decode(self, tokens: tuple[int, ...]) -> str:
        """That of the frame."""
        return self._frame.decode(tokens)
