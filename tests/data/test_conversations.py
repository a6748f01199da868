"""Conversations from files: what is read, and the line and the field of what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from turnwise.agent.imitation import conversation_sequence
from turnwise.data.conversations import Conversation, ConversationExchange, read_conversations
from turnwise.errors import ConfigurationError
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer


def message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


ASKED = [message("user", "Where?"), message("assistant", "<answer> here</answer>")]
LONG = [
    message("system", "You search."),
    message("user", "Who\u2028wrote it?"),
    message("assistant", "search"),
    message("tool", "A page."),
    message("user", "And?"),
    message("assistant", "He did."),
    message("user", "Thanks."),
]
READ = [
    Conversation(None, (ConversationExchange("Where?", "<answer> here</answer>"),)),
    Conversation(
        "You search.",
        (ConversationExchange("Who\u2028wrote it?", "search"), ConversationExchange("A page.\nAnd?", "He did.")),
    ),
]


def lines(folder: Path, *rows: Any) -> Path:
    path = folder / "conversations.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows))
    return path


def test_json_lines_and_parquet_say_the_same(tmp_path: Path) -> None:
    rows = [{"id": 1, "messages": ASKED}, {"id": 2, "messages": LONG}]
    assert read_conversations(lines(tmp_path, rows[0], "", rows[1])) == READ
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "conversations.parquet")
    assert read_conversations(tmp_path / "conversations.parquet") == READ


def test_a_key_that_parquet_fills_with_nulls_says_nothing(tmp_path: Path) -> None:
    rows = [{"messages": [{**each, "name": None} for each in ASKED]}]
    schema = pa.schema([("messages", pa.list_(pa.struct([(key, pa.string()) for key in ("role", "content", "name")])))])
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "conversations.parquet")
    assert read_conversations(tmp_path / "conversations.parquet") == READ[:1]


def refused(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_conversations(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1], "line 2 must be an object with the key `messages`; found list"),
        ({"message": []}, "line 2 must be an object with the key `messages`; found the keys message"),
        ({"messages": 3}, "line 2: messages: Input should be a valid list; found 3"),
        ({"messages": [message("bot", "a")]}, "line 2: messages[0].role: Input should be 'system', 'user', 'assist"),
        ({"messages": [ASKED[0], {"role": "assistant"}]}, "line 2: messages[1].content must be set; found nothing"),
        ({"messages": [message("user", 3)]}, "line 2: messages[0].content: Input should be a valid string; found 3"),
        ({"messages": [{**ASKED[0], "weight": 1}]}, "line 2: messages[0].weight is not known"),
        ({"messages": [ASKED[0], message("system", "s")]}, "line 2: messages[1].role: a system message must be the f"),
        ({"messages": [ASKED[1]]}, "line 2: messages[0].role: a reply of the assistant must follow a message"),
        ({"messages": [*ASKED, ASKED[1]]}, "line 2: messages[2].role: a reply of the assistant must follow"),
        ({"messages": [ASKED[0], message("assistant", "")]}, "line 2: messages[1].content: a reply of the assistant"),
        ({"messages": ASKED[:1]}, "line 2: messages must hold a reply of the assistant to learn from; found none"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_its_line_and_field(
    tmp_path: Path, row: Any, expected: str
) -> None:
    assert expected in refused(lines(tmp_path, {"messages": ASKED}, row))


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    assert "must be a file that ends in .jsonl or .parquet; found another ending" in refused(tmp_path / "a.csv")
    assert "found no file at" in refused(tmp_path / "a.jsonl")
    assert "must hold at least one conversation; found none" in refused(lines(tmp_path))
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    assert "row 1 must be an object with the key `messages`; found the keys text" in refused(tmp_path / "a.parquet")


def test_only_the_assistants_replies_are_trained_on() -> None:
    tokenizer = train_tokenizer(
        ["Where? Who wrote it? search A page. And? He did."] * 4, 300, ["<answer>", "</answer>"]
    )
    frame = ChatFrame(tokenizer)
    sequence = conversation_sequence(READ[1], frame)
    replies = [
        tuple(token for token, owner in zip(sequence.tokens, sequence.turn_of_token, strict=True) if owner == turn)
        for turn in (0, 1)
    ]
    assert replies == [frame.reply("search"), frame.reply("He did.")]
    opening = frame.opening("You search.", "Who\u2028wrote it?")
    assert sequence.tokens == (*opening, *replies[0], *frame.continuation("A page.\nAnd?", replies[0]), *replies[1])
