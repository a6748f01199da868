"""What supervised steps imitate, from the store: demonstrations, or a user's file of chat messages."""

from __future__ import annotations

from pathlib import Path

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from turnwise.agent.imitation import (
    conversation_sequences,
    conversation_texts,
    demonstration_sequences,
    demonstration_texts,
)
from turnwise.agent.playing import PlayParameters
from turnwise.config.schema import Section
from turnwise.data.arrays import SequenceBatch
from turnwise.data.conversations import (
    CONVERSATIONS,
    Conversation,
    read_conversations,
    read_saved_conversations,
    write_conversations,
)
from turnwise.data.trajectory_files import read_trajectories
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import Outside, cached_sha256


class ConversationParameters(Section):
    """The parameters of the conversations."""

    file: Outside


@task(name="conversations", task_run_name="{label}: conversations", retries=1)
@depends_on(kernel=("turnwise.data.conversations",), writes=CONVERSATIONS, platform_bound=False)
def conversations(parameters: ConversationParameters, *, label: str = "preparation") -> Reference:
    """Check and save the conversations of the file, one per line.

    Raises ConfigurationError, with the line and the field where a conversation is not valid.
    """
    path = Path(parameters.file.place)
    parsed_conversations = read_conversations(path)
    if cached_sha256(path) != parameters.file.content:
        raise ConfigurationError(
            f"data.conversations must not change while it is read; {path} has: run again", "TW-changed-file"
        )
    with default_store().write("conversations") as draft:
        write_conversations(draft.folder, parsed_conversations)
        draft.metrics["conversations"] = len(parsed_conversations)
        draft.metrics["replies"] = sum(len(conversation.exchanges) for conversation in parsed_conversations)
    return draft.reference


def load_conversations(reference: Reference) -> list[Conversation]:
    """The conversations that an artifact holds."""
    return read_saved_conversations(default_store().folder(reference))


def texts_to_imitate(demonstrations: Reference) -> list[str]:
    """All texts of the demonstrations or conversations, to train a tokenizer on."""
    if demonstrations.kind == "conversations":
        return conversation_texts(load_conversations(demonstrations))
    return demonstration_texts(read_trajectories(default_store().folder(demonstrations)))


def sequences_to_imitate(parameters: PlayParameters, tokenizer: Reference, demonstrations: Reference) -> SequenceBatch:
    """The demonstrations or conversations as token sequences: see `turnwise.agent.imitation`."""
    folder = default_store().folder(tokenizer)
    if demonstrations.kind == "conversations":
        return conversation_sequences(parameters, folder, load_conversations(demonstrations))
    return demonstration_sequences(parameters, folder, read_trajectories(default_store().folder(demonstrations)))
