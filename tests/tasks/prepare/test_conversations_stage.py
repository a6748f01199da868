"""The stage `conversations`: a user's file of chat messages, checked and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.prepare.imitation import ConversationParameters, conversations, load_conversations
from turnwise.data.conversations import Conversation, ConversationExchange
from turnwise.errors import ConfigurationError
from turnwise.store import default_store
from turnwise.store.plugin_identity import outside_file

pytestmark = pytest.mark.usefixtures("turnwise_home")

SYSTEM, ASKED, ANSWERED, MORE, AGAIN = (
    {"role": role, "content": content}
    for role, content in (
        ("system", "Be brief."),
        ("user", "Where?"),
        ("assistant", "Left\u2028there"),
        ("tool", "You fell."),
        ("assistant", "Right"),
    )
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two conversations, of two replies and of one."""
    return written(tmp_path, [SYSTEM, ASKED, ANSWERED, MORE, AGAIN], [ASKED, AGAIN])


def written(folder: Path, *rows: list[dict[str, Any]]) -> Path:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows), encoding="utf-8")
    return path


def test_what_was_read_is_kept_and_counted(file: Path) -> None:
    reference = conversations.fn(ConversationParameters(file=outside_file(file)))
    first = ConversationExchange("Where?", "Left\u2028there"), ConversationExchange("You fell.", "Right", True)
    assert load_conversations(reference) == [
        Conversation("Be brief.", first),
        Conversation(None, (ConversationExchange("Where?", "Right"),)),
    ]
    assert default_store().metrics(reference) == {"conversations": 2, "replies": 3}


def test_the_place_of_the_file_is_no_part_of_the_artifact(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(file.read_bytes())
    here, there = (conversations.fn(ConversationParameters(file=outside_file(path))) for path in (file, elsewhere))
    assert here == there


def test_a_file_that_changes_while_it_is_read_is_refused(file: Path) -> None:
    parameters = ConversationParameters(file=outside_file(file))
    written(file.parent, [ASKED, AGAIN])
    with pytest.raises(ConfigurationError, match=r"data\.conversations.*TW-changed-file"):
        conversations.fn(parameters)


def test_a_mistake_is_named_with_its_line_and_field(tmp_path: Path) -> None:
    path = written(tmp_path, [ASKED, AGAIN], [ASKED, {"role": "assistent", "content": "Right"}])
    with pytest.raises(ConfigurationError, match=r"chats\.jsonl.*\b2\b.*messages\[1\]\.role.*TW-conversation-form"):
        conversations.fn(ConversationParameters(file=outside_file(path)))
    assert not list(default_store().root.glob("conversations/*")), "nothing is saved of a file with a mistake"
