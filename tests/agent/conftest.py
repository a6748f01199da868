"""The chat frame of a small tokenizer, trained once."""

from __future__ import annotations

import pytest
from agent_samples import LEGAL, form

from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer


@pytest.fixture(scope="session")
def frame() -> ChatFrame:
    texts = [form("up", "stay"), form("jump"), LEGAL, "Up. Height 3 after 2."] * 20
    return ChatFrame(train_tokenizer(texts, 400, ThinkAnswerFormat.tags))
