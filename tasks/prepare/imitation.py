"""What supervised steps imitate, from the store: demonstrations, or a user's conversations."""

from __future__ import annotations

from tasks.prepare.conversations import kept_conversations
from turnwise.agent.imitation import (
    conversation_sequences,
    conversation_texts,
    demonstration_sequences,
    demonstration_texts,
)
from turnwise.agent.playing import PlayParameters
from turnwise.data.arrays import SequenceBatch
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store


def texts_to_imitate(demonstrations: Reference) -> list[str]:
    """All texts of the demonstrations or conversations, to train a tokenizer on."""
    if demonstrations.kind == "conversations":
        return conversation_texts(kept_conversations(demonstrations))
    return demonstration_texts(read_trajectories(default_store().folder(demonstrations)))


def sequences_to_imitate(parameters: PlayParameters, tokenizer: Reference, demonstrations: Reference) -> SequenceBatch:
    """The demonstrations or conversations as token sequences: see `turnwise.agent.imitation`."""
    folder = default_store().folder(tokenizer)
    if demonstrations.kind == "conversations":
        return conversation_sequences(parameters, folder, kept_conversations(demonstrations))
    return demonstration_sequences(parameters, folder, read_trajectories(default_store().folder(demonstrations)))
