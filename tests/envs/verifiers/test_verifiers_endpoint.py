"""The endpoint that stands between a rollout of verifiers and an episode, without the library."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from envs.verifiers.endpoint import Request, assistant_message, forget, open_exchange

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]


def asked(url: str, messages: list[dict[str, str]], tools: list[dict[str, Any]]) -> Mapping[str, Any]:
    body = json.dumps({"model": "policy", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return dict(json.load(reply))


def test_a_request_waits_for_the_action_and_is_answered_with_it() -> None:
    exchange = open_exchange()
    replies: list[Mapping[str, Any]] = []
    messages = [{"role": "user", "content": "2 + 2?"}]
    rollout = threading.Thread(target=lambda: replies.append(asked(exchange.url, messages, TOOLS)))
    rollout.start()
    assert exchange.messages.get(timeout=60) == Request(messages, TOOLS)
    assert not replies
    exchange.replies.put("4")
    rollout.join(60)
    forget(exchange)
    choice = replies[0]["choices"][0]
    assert (choice["message"], choice["finish_reason"]) == ({"role": "assistant", "content": "4"}, "stop")


def test_a_closed_episode_refuses_the_request_that_waits_and_those_that_come() -> None:
    exchange = open_exchange()
    refused: list[int] = []

    def ask() -> None:
        with pytest.raises(urllib.error.HTTPError) as error:
            asked(exchange.url, [], [])
        refused.append(error.value.code)

    waiting = threading.Thread(target=ask)
    waiting.start()
    exchange.messages.get(timeout=60)
    forget(exchange)
    waiting.join(60)
    ask()
    assert refused == [400, 400]


def test_an_action_is_a_call_only_of_a_tool_that_there_is() -> None:
    called = assistant_message(' add[{"a": 1, "b": [2]}] ', TOOLS)
    assert called["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1, "b": [2]}'}
    for text in ("subtract[{}]", "I add[{}] it", "plain"):
        assert assistant_message(text, TOOLS) == {"role": "assistant", "content": text}


def test_an_empty_reply_is_sent_as_one_that_no_client_takes_for_a_failure() -> None:
    assert assistant_message("", ()) == {"role": "assistant", "content": " "}
