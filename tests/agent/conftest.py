"""The chat frame of a small tokenizer, trained once, and the end of every episode that a test plays in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from agent_samples import LEGAL, form

from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import Host
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer


@pytest.fixture(scope="session")
def frame() -> ChatFrame:
    texts = [form("up", "stay"), form("jump"), LEGAL, "Up. Height 3 after 2."] * 20
    return ChatFrame(train_tokenizer(texts, 400, ThinkAnswerFormat.tags))


@pytest.fixture(autouse=True)
def _episodes_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test has begun and not ended, so that no thread of a world waits for the next turn."""
    made: list[Host] = []
    make = Host.__init__

    def remember(host: Host, *arguments: Any) -> None:
        make(host, *arguments)
        made.append(host)

    monkeypatch.setattr(Host, "__init__", remember)
    yield
    for host in made:
        host.close()
