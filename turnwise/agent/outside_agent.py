"""Conversations of agents that own their loop, recorded as trajectories: `turnwise record`.

An agent sends all messages of a conversation with every request, as chat completions have it. Where they begin as an
earlier request of the same episode and its reply did, the context is that one's tokens, with the reply exactly as it
was sampled, and the tokens of the messages that are new: nothing is decoded and tokenized again. Where they do not
(another agent's conversation, a history that was shortened or reworded), the context is tokenized afresh.

Turns stand in the order of time, which returns count in. A turn whose context goes on from that of the turn before it
belongs to the same segment; any other opens a new one, with its whole context. So two agents in one episode, forks and
rewritten contexts are segments, and each reply stands after exactly the tokens that it was sampled after.

A group is a task: its episodes are compared with one another. An episode is named once and is over with its reward.
`flows.runtime.endpoint` answers over HTTP with `Recorder`, which asks the policy and keeps rewards.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.policy.engines.contract import Reply
from turnwise.policy.engines.sampling_thread import SamplingThread
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
        if other_parts := [part for part in content if part.get("type") != "text"]:
            raise ConfigurationError(
                f"a message must be text; found a part of type {other_parts[0].get('type')!r}", "TW-message-not-text"
            )
        content = "".join(part["text"] for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    call_texts = [
        json.dumps({"name": call["name"], "arguments": _arguments(call["arguments"])}, ensure_ascii=False)
        for call in calls
    ]
    return "\n".join([*([content] if content else []), *(f"<tool_call>\n{each}\n</tool_call>" for each in call_texts)])


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
    turn_rewards: list[dict[str, float]] = field(default_factory=list)
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
        answer: Message,
    ) -> None:
        """Record a call that was answered."""
        conversation = tuple(canonical(message) for message in [*messages, answer])
        self.calls.append(RecordedCall(conversation, tuple(context), reply, parent, observation, text))

    def trajectory(self, group: int, replica: int) -> Trajectory:
        """The episode as a trajectory. Its outcome rewards stand at its last turn."""
        turns = []
        for number, call in enumerate(self.calls):
            goes_on = number > 0 and call.parent == number - 1
            begun = len(self.calls[number - 1].after) if goes_on else 0
            rewards = dict(self.turn_rewards[number]) if self.turn_rewards else {}
            if number == len(self.calls) - 1:
                rewards |= self.rewards or {}
            turns.append(
                Turn(
                    observation=call.observation,
                    observation_tokens=call.context[begun:],
                    reply=call.text,
                    reply_tokens=call.reply.tokens,
                    log_probabilities=call.reply.log_probabilities,
                    actions=(call.text,),
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
    trajectories, lost_episodes = [], []
    for episode in episodes:
        group = groups.setdefault(episode.group, len(groups))
        replica = replicas[episode.group] = replicas.get(episode.group, -1) + 1
        if episode.rewards is None or not episode.calls:
            reason = "no reward was posted" if episode.calls else "nothing was asked"
            lost_episodes.append(
                LostEpisode(Task(WORLD, episode.group, "train", group, tags={}), group, replica, reason)
            )
        else:
            trajectories.append(episode.trajectory(group, replica))
    return trajectories, lost_episodes


def answer_of(text: str, with_tools: bool, number: int) -> dict[str, Any]:
    """A reply as the message that an agent gets: with its calls of tools, if it has been given any."""
    calls = []
    for place, match in enumerate(CALL.finditer(text) if with_tools else ()):
        try:
            call = json.loads(match[1])
            name, arguments = call["name"], json.dumps(call.get("arguments", {}), ensure_ascii=False)
            (name + arguments).encode()  # half a surrogate pair is valid JSON, but no text that can be answered with
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"role": "assistant", "content": text}  # no call that could be read: the agent sees what was said
        function = {"name": name, "arguments": arguments}
        calls.append({"id": f"call_{number}_{place}", "type": "function", "function": function})
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": CALL.sub("", text).strip() or None, "tool_calls": calls}


NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1, 1.0),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "stop": ([],),
}
"""Keys of a request that would change what is sampled, with the values that do not."""
READ = {"messages", "model", "max_tokens", "max_completion_tokens", "stream", "tools", "temperature", "logprobs"}
IGNORED = {"user", "metadata", "stream_options", "store", "seed", "top_logprobs", "service_tier", "safety_identifier"}
"""Keys that change nothing of what is sampled. A seed is the server's: replies depend on what else is in flight."""


class Refused(Exception):
    """A request that is wrong: a status and what must hold."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Recorder:
    """The episodes that are recorded, and the policy that answers in them."""

    def __init__(
        self,
        sampling: SamplingThread,
        frame: Callable[[str], ConversationFrame],
        temperature: float,
        write: Callable[[Sequence[RecordedEpisode]], dict[str, Any]],
        model: str,
    ) -> None:
        """`frame` makes a frame for tools as JSON; `write` keeps episodes, and returns what it tells of them."""
        self._sampling, self._frame, self._temperature, self._write = sampling, frame, temperature, write
        self._model = model
        self._episodes: dict[tuple[str, str], RecordedEpisode] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._all = threading.Lock()

    def complete(self, group: str, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of an episode, and record both."""
        self._require_plain(request)
        messages, tools = request.get("messages"), request.get("tools") or []
        if (
            not isinstance(messages, list)
            or not messages
            or not all(isinstance(m, dict) and "role" in m for m in messages)
        ):
            raise Refused("messages must be a list of messages with roles, and not empty")
        episode, lock = self._episode(group, name)
        frame = self._frame(json.dumps(tools, sort_keys=True))
        limits = (request.get("max_completion_tokens"), request.get("max_tokens"))
        limit = next((each for each in limits if each is not None), None)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise Refused(f"max_completion_tokens must be a whole number above 0; found {json.dumps(limit)[:80]}")
        try:
            with lock:
                context, parent, observation = episode.context(messages, frame)
            reply = self._sampling.sample(context, limit).result()
        except (ConfigurationError, ValueError) as error:
            raise Refused(str(error)) from error
        text = frame.decode(reply.tokens)
        with lock:
            if episode.rewards is not None:
                raise Refused(f"the episode {group}/{name} has its reward and is over", 409)
            answer = answer_of(text, bool(tools), len(episode.calls))
            episode.add(messages, context, parent, observation, reply, text, answer)
            episode.truncated = not reply.complete
        finish = "length" if not reply.complete else "tool_calls" if answer.get("tool_calls") else "stop"
        spelled: list[dict[str, Any]] = [
            {"token": frame.decode([token]), "logprob": value, "bytes": None, "top_logprobs": []}
            for token, value in zip(reply.tokens, reply.log_probabilities, strict=True)
        ]
        return {
            "id": f"chatcmpl-{group}-{name}-{len(episode.calls)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [
                {
                    "index": 0,
                    "message": answer,
                    "finish_reason": finish,
                    "logprobs": {"content": spelled} if request.get("logprobs") else None,
                }
            ],
            "usage": {
                "prompt_tokens": len(context),
                "completion_tokens": len(reply.tokens),
                "total_tokens": len(context) + len(reply.tokens),
            },
        }

    def reward(self, group: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """End an episode with its rewards."""
        if unread := body.keys() - {"reward", "rewards", "turns"}:
            raise Refused(f"a reward has the keys reward, or rewards and turns; found {', '.join(sorted(unread))}")
        if "reward" in body and body.get("rewards"):
            raise Refused("an episode must get reward or rewards; found both: name the one among the others")
        rewards = {"reward": body["reward"]} if "reward" in body else body.get("rewards") or {}
        turns = body.get("turns") or []
        if not isinstance(turns, list) or not all(isinstance(each, dict) for each in (rewards, *turns)):
            raise Refused("rewards must be numbers by name, and turns a list of such, one per reply")
        for where, value in [item for each in (rewards, *turns) for item in each.items()]:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Refused(f"a reward must be a finite number; {where} is {value!r}")
        if not rewards and not turns:
            raise Refused("an episode must get a reward: post reward, or rewards by name")
        with self._all:
            episode = self._episodes.get((group, name))
            if episode is None or not episode.calls:
                raise Refused(f"an episode must have asked for a reply; {group}/{name} has not", 404)
            with self._locks[group, name]:  # no reply is added meanwhile
                if episode.rewards is not None:
                    raise Refused(f"an episode gets its reward once; {group}/{name} has it", 409)
                if turns and len(turns) != len(episode.calls):
                    raise Refused(f"turns must have one entry per reply, {len(episode.calls)}; found {len(turns)}")
                episode.rewards, episode.turn_rewards = {key: float(value) for key, value in rewards.items()}, turns
        return {"group": group, "episode": name, "turns": len(episode.calls), "rewards": episode.rewards}

    def write(self) -> dict[str, Any]:
        """Keep the episodes so far, and begin anew; where they cannot be kept, they stay."""
        with self._all:
            summary = self._write(list(self._episodes.values()))
            self._episodes, self._locks = {}, {}
        return summary

    @property
    def status(self) -> dict[str, Any]:
        """What is recorded and not yet written."""
        episodes = list(self._episodes.values())
        return {
            "model": self._model,
            "episodes": len(episodes),
            "rewarded": sum(each.rewards is not None for each in episodes),
            "turns": sum(len(each.calls) for each in episodes),
        }

    def _episode(self, group: str, name: str) -> tuple[RecordedEpisode, threading.Lock]:
        with self._all:
            episode = self._episodes.setdefault((group, name), RecordedEpisode(group, name))
            lock = self._locks.setdefault((group, name), threading.Lock())
        if episode.rewards is not None:
            raise Refused(f"the episode {group}/{name} has its reward and is over: give the next one another name", 409)
        return episode, lock

    def _require_plain(self, request: Mapping[str, Any]) -> None:
        """Raise Refused for a request that asks for another distribution than the one that is recorded."""
        if (temperature := request.get("temperature")) not in (None, self._temperature):
            raise Refused(
                f"temperature must be left out, or {self._temperature:g}, at which all is sampled; found "
                f"{temperature}: start the server with --temperature"
            )
        for key, value in request.items():
            if key in READ or key in IGNORED or value is None:
                continue
            if value not in NEUTRAL.get(key, ()):
                raise Refused(
                    f"{key} must be left out: replies are sampled from the policy's own distribution, since that is "
                    f"what is learned from; found {json.dumps(value)[:80]}"
                )
