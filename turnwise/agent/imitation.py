"""What supervised steps imitate, demonstrations or a user's conversations: as texts and as token sequences."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from turnwise.agent.context import Ask, Context, make_context
from turnwise.agent.examples import tokens_of_exchanges
from turnwise.agent.formats import Format, make_format
from turnwise.agent.playing import PlayParameters, conversation_frame, instruction_of, the_world
from turnwise.agent.scripted import scripted_summary
from turnwise.config.agent import Agent
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.data.conversations import Conversation
from turnwise.data.trajectory import Trajectory, Turn, TurnKind, trajectory_arrays
from turnwise.errors import ConfigurationError
from turnwise.policy.function_frame import chat_frame
from turnwise.policy.tokenizer import ChatFrame


def tokenized(
    trajectory: Trajectory, frame: ChatFrame, form: Format, context: Context, longest: Mapping[TurnKind, int]
) -> Trajectory:
    """The demonstration with tokens, cut before the first turn at which a reply of maximum length might not fit.

    Scripted policies run before a tokenizer exists. Only token counts decide when a window holds fewer turns, when a
    summary must come early, and where an episode exceeds its budget. So the context policy runs again over the recorded
    texts, with the same code that episodes use. Recorded summaries are rewritten for the turns that they now replace.

    `context` must be fresh; `longest` is the maximum reply length in tokens for each kind of turn. Log-probabilities
    are filled with 0, since nothing was sampled.
    """
    turns: list[Turn] = []

    def say(turn: Turn, ask: Ask) -> bool:
        message = context.ask(turn.observation, ask)
        if message is None:
            return False
        reply = frame.reply(turn.reply)
        turns.append(
            replace(
                turn,
                observation_tokens=message.tokens,
                opens_segment=message.opens_segment,
                reply_tokens=reply,
                log_probabilities=(0.0,) * len(reply),
            )
        )
        note = "" if turn.kind is TurnKind.ACT else form.escape(turn.thought)
        context.replied(reply, note, has_actions=bool(turn.actions))
        return True

    attempt, last_said = 0, ""
    for turn in trajectory.turns:
        if turn.kind is TurnKind.SUMMARY:
            continue
        if turn.attempt != attempt:
            context.begin_again()
            attempt = turn.attempt
        last_said = turn.observation or last_said
        ask = Ask(turn.kind, longest[turn.kind], turn.asked)
        if summary := context.summary_before(turn.observation, ask):
            attempt_turns = [each for each in turns if each.attempt == attempt]
            say(_summary(scripted_summary(attempt_turns, summary.reply_tokens, form), form, summary, attempt), summary)
            turn = replace(turn, observation=turn.observation or last_said)
        if not say(turn, ask):
            break
    return replace(trajectory, turns=tuple(turns))


def _summary(thought: str, form: Format, ask: Ask, attempt: int) -> Turn:
    return Turn(
        observation="",
        observation_tokens=(),
        reply=form.write_thought(thought),
        reply_tokens=(),
        log_probabilities=(),
        thought=thought,
        effective=False,
        trained=ask.trained,
        kind=ask.kind,
        asked=ask.words,
        attempt=attempt,
    )


logger = logging.getLogger(__name__)


def demonstration_texts(trajectories: Sequence[Trajectory]) -> list[str]:
    """All texts of demonstrations, to train a tokenizer on."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    return [text for turn in turns for text in (turn.observation, turn.asked, turn.reply)]


def conversation_texts(conversations: Sequence[Conversation]) -> list[str]:
    """All texts of conversations, to train a tokenizer on."""
    texts = []
    for conversation in conversations:
        texts += [] if conversation.instruction is None else [conversation.instruction]
        texts += [text for each in conversation.exchanges for text in (each.observation, each.reply)]
    return texts


def demonstration_sequences(
    parameters: PlayParameters, tokenizer: Path, trajectories: Sequence[Trajectory]
) -> SequenceBatch:
    """Tokenize demonstrations exactly as the policy would see them in an episode.

    `tokenizer` is the folder of its tokenizer. All replies are learned from, also those that reinforcement does not
    train. Raises ConfigurationError where nothing fits into the context.
    """
    world, agent = the_world(parameters.world), parameters.agent
    form = make_format(agent.format, world)
    frame = chat_frame(tokenizer, form.functions)
    instruction, shown_before = instruction_of(agent, world), conversation_frame(parameters, frame)
    replies = _longest_replies(agent)
    demonstrations = []
    for trajectory in trajectories:
        context = make_context(agent.context, shown_before, instruction, agent.context_tokens, agent.thoughts)
        demonstrations.append(tokenized(trajectory, frame, form, context, replies))
    sequences, _ = trajectory_arrays(demonstrations).segments(every_reply=True)
    if not len(sequences):
        raise ConfigurationError(
            "a demonstration's first turn must fit into the context; found none that does: raise agent.context_tokens, "
            f"which is {agent.context_tokens}, or lower agent.maximum_reply_tokens",
            "TW-short-context",
        )
    return sequences


def conversation_sequences(
    parameters: PlayParameters, tokenizer: Path, conversations: Sequence[Conversation]
) -> SequenceBatch:
    """Tokenize conversations as the policy would see them in an episode; all replies are learned from.

    Those longer than the context are left out with a warning: no episode could be so long. Raises ConfigurationError
    where none fits.
    """
    form = make_format(parameters.agent.format, the_world(parameters.world))
    frame = chat_frame(tokenizer, form.functions)
    sequences = [conversation_sequence(conversation, frame) for conversation in conversations]
    return SequenceBatch.of(_fitting(sequences, parameters.agent.context_tokens))


def _longest_replies(agent: Agent) -> dict[TurnKind, int]:
    """The most tokens of a reply, by kind of turn; the context policy sets that of a summary."""
    thought = agent.mode.tokens or 0
    return {TurnKind.ACT: agent.maximum_reply_tokens, TurnKind.PLAN: thought, TurnKind.REFLECT: thought}


def conversation_sequence(conversation: Conversation, frame: ChatFrame) -> TokenSequence:
    """Frame a conversation as the agent would: its replies are turns, everything else is observation."""
    tokens: list[int] = []
    turn_of_token: list[int] = []
    exchanges = tokens_of_exchanges(frame, conversation.instruction, conversation.exchanges)
    for index, (observation, reply) in enumerate(exchanges):
        tokens += [*observation, *reply]
        turn_of_token += [-1] * len(observation) + [index] * len(reply)
    return TokenSequence(tuple(tokens), tuple(turn_of_token), (0.0,) * len(tokens))


def _fitting(sequences: Sequence[TokenSequence], context_tokens: int) -> list[TokenSequence]:
    fitting = [sequence for sequence in sequences if len(sequence.tokens) <= context_tokens]
    if not fitting:
        shortest = min(len(sequence.tokens) for sequence in sequences)
        raise ConfigurationError(
            f"agent.context_tokens must have room for a conversation; found {context_tokens}, and the shortest of "
            f"{len(sequences)} has {shortest} tokens: raise it, or give shorter ones",
            "TW-short-context",
        )
    if len(fitting) < len(sequences):
        logger.warning(
            "%d of %d conversations are longer than agent.context_tokens: %d, and are left out",
            len(sequences) - len(fitting),
            len(sequences),
            context_tokens,
        )
    return fitting
