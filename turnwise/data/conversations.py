"""Recorded conversations to imitate (for the SFT warm start): files of chat messages, one conversation per row.

A JSON Lines file has one conversation per line, a Parquet file one per row. The key or column `messages` holds a list
of `{"role": ..., "content": ...}`; other keys and columns are not read. The assistant's messages are replies, which are
trained on; all others are context, which is attended to. As in an episode, each reply follows one observation, so that
`user` and `tool` messages between two replies are joined by a line break. Messages after the last reply are dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from turnwise.config.schema import Data, Policy, Section, WarmStart
from turnwise.data.row_files import SUFFIXES, read_rows
from turnwise.errors import ConfigurationError
from turnwise.project import project_root
from turnwise.world import World

CONVERSATIONS = "conversations 1"
"""The layout of these files. It is in the cache key of who writes them: a changed layout gets another number."""
CONVERSATIONS_FILE = "conversations.jsonl"
"""The file of an artifact."""


@dataclass(frozen=True)
class ConversationExchange:
    """One observation (the messages before a reply, joined) and the assistant's reply."""

    observation: str
    reply: str
    answers_call: bool = False
    """Whether all messages before the reply are of the role `tool`."""


@dataclass(frozen=True)
class Conversation:
    """One conversation, at least one exchange long."""

    instruction: str | None
    """The system message, or None."""
    exchanges: tuple[ConversationExchange, ...]


class Message(Section):
    """One message, as it stands in the file. A key that is not known is an error: what it says would be lost."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


def _without_nulls(message: Any) -> Any:
    """The message without null values: a Parquet struct has every key in every row, null where a message lacks it."""
    return {key: value for key, value in message.items() if value is not None} if isinstance(message, dict) else message


_SAVED = TypeAdapter(Conversation)
_MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Annotated[Message, BeforeValidator(_without_nulls)]])


def require_conversations_file(path: Path) -> None:
    """Raise ConfigurationError unless `path` is a file that ends in .jsonl or .parquet."""
    if path.suffix not in SUFFIXES or not os.path.isfile(path):  # a name that is too long is no file either
        raise ConfigurationError(
            f"data.conversations must be a file that ends in {' or '.join(SUFFIXES)}; found "
            f"{'no file' if path.suffix in SUFFIXES else 'another ending'} at {path}",
            "TW-file-format",
        )


def require_demonstrations(data: Data, warm_start: WarmStart, policy: Policy, world: World) -> None:
    """Raise ConfigurationError for a warm start, or a policy from scratch, that has nothing to imitate.

    That is an oracle's demonstrations, or a file of conversations.
    """
    if data.conversations is not None:
        require_conversations_file(project_root() / data.conversations)
        return
    if "oracle" in world.baselines or not (warm_start.enabled or policy.model == "scratch"):
        return
    raise ConfigurationError(
        f"a warm start, and a policy from scratch, learn from demonstrations by the world's oracle; the world "
        f"{world.name!r} has none, its baselines are {', '.join(world.baselines) or 'none'}; found warm_start.enabled: "
        f"{str(warm_start.enabled).lower()} and policy.model: {policy.model}: set warm_start.enabled to "
        "false and policy.model to a directory or a hub id, or data.conversations to a file to learn from",
        "TW-no-oracle",
    )


def read_conversations(path: Path) -> list[Conversation]:
    """The conversations of a file, in order.

    Raises:
        ConfigurationError: the file or a conversation is malformed; the message names the line or row, and the field.
    """
    require_conversations_file(path)
    conversations = [_conversation(row, where) for row, where in read_rows(path, "messages")]
    if not conversations:
        raise ConfigurationError(f"{path} must hold at least one conversation; found none", "TW-empty-file")
    return conversations


def _conversation(row: Any, where: str) -> Conversation:
    if not isinstance(row, dict) or "messages" not in row:
        actual = f"the keys {', '.join(row)}" if isinstance(row, dict) else type(row).__name__
        raise ConfigurationError(
            f"{where} must be an object with the key `messages`; found {actual}", "TW-conversation-form"
        )
    try:
        messages = _MESSAGES.validate_python(row["messages"])
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {_explained(error)}", "TW-conversation-form") from None
    return _joined(messages, where)


def _explained(error: ValidationError) -> str:
    """The first validation error in words: the field, what must hold, what was found."""
    mistake = error.errors()[0]
    path = "messages" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return f"{path} is not known: a message has a role and a content; write what it says into the content"
    if mistake["type"] == "missing":
        return f"{path} must be set; found nothing"
    return f"{path}: {mistake['msg']}; found {mistake['input']!r}"


def _joined(messages: Sequence[Message], where: str) -> Conversation:
    instruction: str | None = None
    exchanges: list[ConversationExchange] = []
    unanswered: list[Message] = []
    for number, message in enumerate(messages):
        place = f"{where}: messages[{number}]"
        if message.role == "system":
            if number > 0:
                raise ConfigurationError(
                    f"{place}.role: a system message must be the first; found one after others", "TW-conversation-order"
                )
            instruction = message.content
        elif message.role != "assistant":
            unanswered.append(message)
        else:
            _require_reply(message, unanswered, place)
            observation = "\n".join(each.content for each in unanswered)
            answers_call = all(each.role == "tool" for each in unanswered)
            exchanges.append(ConversationExchange(observation, message.content, answers_call))
            unanswered = []
    if not exchanges:
        raise ConfigurationError(
            f"{where}: messages must hold a reply of the assistant to learn from; found none", "TW-conversation-reply"
        )
    return Conversation(instruction, tuple(exchanges))


def _require_reply(message: Message, unanswered: Sequence[Message], place: str) -> None:
    if not unanswered:
        raise ConfigurationError(
            f"{place}.role: a reply of the assistant must follow a message of user or tool; found none before it",
            "TW-conversation-order",
        )
    if not message.content:
        raise ConfigurationError(
            f"{place}.content: a reply of the assistant must not be empty; found nothing", "TW-conversation-reply"
        )


def write_conversations(folder: Path, conversations: Sequence[Conversation]) -> None:
    """Write conversations into the folder of an artifact, one per line."""
    lines = [json.dumps(asdict(conversation), ensure_ascii=False) for conversation in conversations]
    (folder / CONVERSATIONS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_saved_conversations(folder: Path) -> list[Conversation]:
    """The conversations that `write_conversations` wrote into a folder."""
    text = (folder / CONVERSATIONS_FILE).read_text(encoding="utf-8")
    return [_SAVED.validate_json(line) for line in text.split("\n") if line]
