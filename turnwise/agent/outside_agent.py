"""Conversations of agents that own their loop, recorded as trajectories: `turnwise record`.

An agent sends all messages of a conversation with every request, as chat completions have it. Where they begin as an
earlier request of the same episode and its reply did, the context is that one's tokens, with the reply exactly as it
was sampled, and the tokens of the messages that are new: nothing is decoded and tokenized again. Where they do not
(another agent's conversation, a history that was shortened or reworded), the context is tokenized afresh.

Turns stand in the order of time, which returns count in. A turn whose context goes on from that of the turn before it
belongs to the same segment; any other opens a new one, with its whole context. So two agents in one episode, forks and
rewritten contexts are segments, and each reply stands after exactly the tokens that it was sampled after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.policy.engines.contract import Reply
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORLD = "recorded"
"""What the tasks of recorded episodes name in place of a world."""
CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
"""A call as Qwen's and Hermes' templates ask for it."""

ROLES = {"developer": "system"}
"""Roles of the protocol that templates call otherwise."""

Message = Mapping[str, Any]


class ConversationFrame(ChatFrame):
    """A chat frame for any sequence of roles, whose template may be given tools."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        further_end_tokens: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._tools = list(tools)
        super().__init__(tokenizer, further_end_tokens)

    def context(self, messages: Sequence[Message], after: int = 0, reply: Sequence[int] = ()) -> tuple[int, ...]:
        """The tokens before the next reply to these messages, without those of the first `after` messages.

        The last of these has the tokens `reply`, and is closed where they do not end with the end token. Raises
        ConfigurationError for roles that the template does not take.
        """
        pieces = self._pieces_around([ROLES.get(message["role"], str(message["role"])) for message in messages])
        tokens = list(pieces[0]) if not after else list(pieces[after] if self._closing(reply) else pieces[after][1:])
        for message, piece in zip(messages[after:], pieces[after + 1 :], strict=True):
            tokens += [*self._text(text_of(message)), *piece]
        return tuple(tokens)

    def _template_arguments(self) -> Mapping[str, Any]:
        return {"tools": self._tools} if self._tools else {}


def text_of(message: Message) -> str:
    """What a message says, parts joined, with the calls of an assistant as the template would have it write them."""
    content = message.get("content") or ""
    if isinstance(content, list):
        if wrong := [part for part in content if part.get("type") != "text"]:
            raise ConfigurationError(
                f"a message must be text; found a part of type {wrong[0].get('type')!r}", "TW-message-not-text"
            )
        content = "".join(part["text"] for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    written = [
        json.dumps({"name": call["name"], "arguments": _arguments(call["arguments"])}, ensure_ascii=False)
        for call in calls
    ]
    return "\n".join([*([content] if content else []), *(f"<tool_call>\n{each}\n</tool_call>" for each in written)])


def _arguments(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


@dataclass(frozen=True)
class RecordedCall:
    """One request of an agent, and its reply."""

    messages: tuple[str, ...]
    """The request's messages and the reply's, each as canonical JSON."""
    context: tuple[int, ...]
    reply: Reply
    parent: int | None
    """The call whose context and reply this context begins with, and goes on from; None: it was tokenized afresh."""
    observation: str
    text: str

    @property
    def after(self) -> tuple[int, ...]:
        """The context with the reply."""
        return (*self.context, *self.reply.tokens)


@dataclass
class RecordedEpisode:
    """The calls of one episode, in the order in which they were answered, and its rewards."""

    group: str
    name: str
    calls: list[RecordedCall] = field(default_factory=list)
    rewards: dict[str, float] | None = None
    """Outcome rewards by name; None: none was posted."""
    of_turns: list[dict[str, float]] = field(default_factory=list)
    """Rewards of single turns, by name; empty, or as many as there are calls."""
    truncated: bool = False

    def parent_of(self, messages: Sequence[str]) -> int | None:
        """The call with the longest conversation, of the latest, that these messages begin with."""
        parent = None
        for number, call in enumerate(self.calls):
            length = len(call.messages)
            if tuple(messages[:length]) == call.messages and (
                parent is None or length >= len(self.calls[parent].messages)
            ):
                parent = number
        return parent

    def context(self, messages: Sequence[Message], frame: ConversationFrame) -> tuple[tuple[int, ...], int | None, str]:
        """The tokens before the reply to these messages, the call that they go on from, and what is new, as text."""
        conversation = [canonical(message) for message in messages]
        parent = self.parent_of(conversation)
        if parent is None:
            return frame.context(messages), None, "\n".join(map(text_of, messages))
        call = self.calls[parent]
        new = frame.context(messages, len(call.messages), call.reply.tokens)
        return (*call.after, *new), parent, "\n".join(map(text_of, messages[len(call.messages) :]))

    def add(
        self,
        messages: Sequence[Message],
        context: Sequence[int],
        parent: int | None,
        observation: str,
        reply: Reply,
        text: str,
        answered: Message,
    ) -> None:
        """Record a call that was answered."""
        conversation = tuple(canonical(message) for message in [*messages, answered])
        self.calls.append(RecordedCall(conversation, tuple(context), reply, parent, observation, text))

    def trajectory(self, group: int, replica: int) -> Trajectory:
        """The episode as a trajectory. Its outcome rewards stand at its last turn."""
        turns = []
        for number, call in enumerate(self.calls):
            goes_on = number > 0 and call.parent == number - 1
            begun = len(self.calls[number - 1].after) if goes_on else 0
            rewards = dict(self.of_turns[number]) if self.of_turns else {}
            if number == len(self.calls) - 1:
                rewards |= self.rewards or {}
            turns.append(
                Turn(
                    observation=call.observation,
                    observation_tokens=call.context[begun:],
                    reply=call.text,
                    reply_tokens=call.reply.tokens,
                    log_probabilities=call.reply.log_probabilities,
                    thought="",
                    actions=(call.text,),
                    invalid=None,
                    effective=True,
                    rewards=rewards,
                    opens_segment=number > 0 and not goes_on,
                )
            )
        return Trajectory(
            task=Task(WORLD, self.group, "train", group, tags={}),
            group=group,
            replica=replica,
            turns=tuple(turns),
            ending=Ending.TURN_LIMIT if self.truncated else Ending.FAILURE,
            final_observation="",
        )


def canonical(message: Message) -> str:
    """A message as text that is the same for the same role and content: of an agent's copy of a reply, too."""
    return json.dumps([message["role"], text_of(message), message.get("tool_call_id")], ensure_ascii=False)


def trajectories_of_episodes(episodes: Sequence[RecordedEpisode]) -> tuple[list[Trajectory], list[LostEpisode]]:
    """The episodes with a reward as trajectories, and the others as lost: no reward is missing data, never 0."""
    groups: dict[str, int] = {}
    replicas: dict[str, int] = {}
    trajectories, lost = [], []
    for episode in episodes:
        group = groups.setdefault(episode.group, len(groups))
        replica = replicas[episode.group] = replicas.get(episode.group, -1) + 1
        if episode.rewards is None or not episode.calls:
            reason = "no reward was posted" if episode.calls else "nothing was asked"
            lost.append(LostEpisode(Task(WORLD, episode.group, "train", group, tags={}), group, replica, reason))
        else:
            trajectories.append(episode.trajectory(group, replica))
    return trajectories, lost


def answer_of(text: str, with_tools: bool, number: int) -> dict[str, Any]:
    """A reply as the message that an agent gets: with its calls of tools, if it has been given any."""
    calls = []
    for place, match in enumerate(CALL.finditer(text) if with_tools else ()):
        try:
            call = json.loads(match[1])
            name, arguments = call["name"], json.dumps(call.get("arguments", {}), ensure_ascii=False)
        except (ValueError, KeyError, TypeError):
            return {"role": "assistant", "content": text}  # no call that could be read: the agent sees what was said
        function = {"name": name, "arguments": arguments}
        calls.append({"id": f"call_{number}_{place}", "type": "function", "function": function})
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": CALL.sub("", text).strip() or None, "tool_calls": calls}
