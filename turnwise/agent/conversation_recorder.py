"""Records an outside agent's conversations: answers its chat completions with the policy, and keeps its rewards.

A group is a task: its episodes are compared with one another. An episode is named once and is over with its reward.
`flows.runtime.endpoint` answers with it over HTTP.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.agent.outside_agent import ConversationFrame, RecordedEpisode, answer_of
from turnwise.errors import ConfigurationError
from turnwise.policy.engines.sampling_thread import SamplingThread

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
        limit = request.get("max_completion_tokens") or request.get("max_tokens")
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

    def reward(self, group: str, name: str, posted: Mapping[str, Any]) -> dict[str, Any]:
        """End an episode with its rewards."""
        if unread := posted.keys() - {"reward", "rewards", "turns"}:
            raise Refused(f"a reward has the keys reward, or rewards and turns; found {', '.join(sorted(unread))}")
        rewards = {"reward": posted["reward"]} if "reward" in posted else dict(posted.get("rewards") or {})
        turns = [dict(each) for each in posted.get("turns") or []]
        for where, value in [item for each in (rewards, *turns) for item in each.items()]:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Refused(f"a reward must be a finite number; {where} is {value!r}")
        if not rewards and not turns:
            raise Refused("an episode must get a reward: post reward, or rewards by name")
        with self._all:
            episode = self._episodes.get((group, name))
            if episode is None or not episode.calls:
                raise Refused(f"an episode must have asked for a reply; {group}/{name} has not", 404)
            if episode.rewards is not None:
                raise Refused(f"an episode gets its reward once; {group}/{name} has it", 409)
            if turns and len(turns) != len(episode.calls):
                raise Refused(f"turns must have one entry per reply, {len(episode.calls)}; found {len(turns)}")
            episode.rewards, episode.of_turns = {key: float(value) for key, value in rewards.items()}, turns
        return {"group": group, "episode": name, "turns": len(episode.calls), "rewards": episode.rewards}

    def write(self) -> dict[str, Any]:
        """Keep the episodes so far, and begin anew."""
        with self._all:
            episodes, self._episodes, self._locks = list(self._episodes.values()), {}, {}
        return self._write(episodes)

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
