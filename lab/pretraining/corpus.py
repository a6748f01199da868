"""What base policies are trained on: one tokenizer for all worlds, demonstrations, and sequences that teach copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lab.pretraining.configuration import Copying
from lab.pretraining.copying import recall, repetition
from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import playing_code
from tasks.prepare.imitation import sequences_to_imitate, texts_to_imitate
from turnwise import seeding
from turnwise.agent.formats import format_class, make_format
from turnwise.agent.formats.contract import Format
from turnwise.agent.imitation import conversation_sequence
from turnwise.agent.playing import PlayParameters, the_world
from turnwise.config.schema import Section
from turnwise.data.arrays import SequenceBatch
from turnwise.policy.tokenizer import ChatFrame, load_frame, save_tokenizer, train_tokenizer
from turnwise.store import Reference, default_store
from turnwise.world import ScriptedAction

CORPUS_FILE = "sequences.safetensors"
REPETITIONS, RECALLS = "repetitions", "recalls"
COPYING = (REPETITIONS, RECALLS)


class BaseTokenizerParameters(Section):
    """The parameters of the base policies' tokenizer."""

    vocabulary: int
    formats: tuple[str, ...]
    """The formats whose tags become tokens."""


@task(name="base_tokenizer", task_run_name="{label}: base_tokenizer", retries=1)
@depends_on()
def base_tokenizer(
    parameters: BaseTokenizerParameters, *, demonstrations: dict[str, Reference], label: str = "base_tokenizer"
) -> Reference:
    """Train one byte-level BPE on the demonstrations of all worlds, each world's texts as many as the fewest."""
    texts = {name: sorted(set(texts_to_imitate(each))) for name, each in sorted(demonstrations.items())}
    fewest = min(sum(map(len, each)) for each in texts.values())
    with default_store().write("tokenizer") as draft:
        even = [text for name, each in texts.items() for text in _drawn_up_to(name, each, fewest)]
        tags = list(dict.fromkeys(tag for name in parameters.formats for tag in format_class(name).tags))
        save_tokenizer(train_tokenizer(even, parameters.vocabulary, tags), draft.folder)
    return draft.reference


def _drawn_up_to(name: str, texts: list[str], characters: int) -> list[str]:
    """Texts in a random order, until they have this many characters."""
    order = seeding.generator(0, "texts of the tokenizer", name).permutation(len(texts))
    lengths = np.cumsum([len(texts[place]) for place in order])
    return [texts[place] for place in order[: int(np.searchsorted(lengths, characters)) + 1]]


class CorpusParameters(Section):
    """The parameters of the corpus."""

    seed: int
    context_tokens: int
    observed_share: float
    copying: Copying
    play: dict[str, PlayParameters]
    """By world, how its demonstrations were played."""


def _code_of_worlds(parameters: CorpusParameters) -> list[str]:
    return sorted({module for play in parameters.play.values() for module in playing_code(play)})


@task(name="corpus", task_run_name="{label}: corpus", retries=1)
@depends_on(code=_code_of_worlds)
def corpus(
    parameters: CorpusParameters, *, tokenizer: Reference, demonstrations: dict[str, Reference], label: str = "corpus"
) -> Reference:
    """Tokenize all sequences: those of each world, repetitions and recalls; see `read_corpus`.

    Of a share of the demonstrations, observations are trained on too: what a world looks like is worth knowing.
    """
    sources = {
        name: _cut(sequences_to_imitate(play, tokenizer, demonstrations[name]), parameters.context_tokens)
        for name, play in sorted(parameters.play.items())
    }
    sources = {name: _observed(name, each, parameters) for name, each in sources.items()}
    sources |= _copying(parameters, load_frame(default_store().folder(tokenizer)))
    with default_store().write("corpus") as draft:
        tensors: dict[str, NDArray[Any]] = {}
        for name, each in sources.items():
            tensors[f"{name}.tokens"] = each.tokens.astype(np.int32)
            tensors[f"{name}.turn_of_token"] = each.turn_of_token.astype(np.int16)
            tensors[f"{name}.offsets"] = each.offsets
            draft.metrics[f"sequences/{name}"] = len(each)
            draft.metrics[f"tokens/{name}"] = len(each.tokens)
        save_file(tensors, draft.folder / CORPUS_FILE)
    return draft.reference


def read_corpus(reference: Reference) -> dict[str, SequenceBatch]:
    """The sequences of a corpus by source: a world's name, or one of `COPYING`."""
    tensors = load_file(default_store().folder(reference) / CORPUS_FILE)
    names = sorted({name.rpartition(".")[0] for name in tensors})
    return {
        name: SequenceBatch(
            tensors[f"{name}.tokens"].astype(np.int64),
            tensors[f"{name}.turn_of_token"].astype(np.int64),
            np.zeros(len(tensors[f"{name}.tokens"])),
            tensors[f"{name}.offsets"],
        )
        for name in names
    }


def _cut(sequences: SequenceBatch, longest: int) -> SequenceBatch:
    """The sequences, each with at most `longest` tokens."""
    lengths = np.minimum(sequences.lengths, longest)
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1]) + np.repeat(sequences.offsets[:-1] - (ends - lengths), lengths)
    return SequenceBatch(
        sequences.tokens[places],
        sequences.turn_of_token[places],
        sequences.log_probabilities[places],
        np.concatenate([[0], ends]),
    )


def _observed(name: str, sequences: SequenceBatch, parameters: CorpusParameters) -> SequenceBatch:
    """The sequences, in a share of which all tokens but the first are trained on."""
    draws = seeding.generator(parameters.seed, "observed", name).random(len(sequences))
    trained = np.repeat(draws < parameters.observed_share, sequences.lengths)
    trained[sequences.offsets[:-1]] = False  # nothing predicts a first token
    turn_of_token = np.where(trained & ~sequences.mask, 0, sequences.turn_of_token)
    return SequenceBatch(sequences.tokens, turn_of_token, sequences.log_probabilities, sequences.offsets)


def _copying(parameters: CorpusParameters, frame: ChatFrame) -> Mapping[str, SequenceBatch]:
    options, seed = parameters.copying, parameters.seed
    control = {token for token, added in frame.tokenizer.added_tokens_decoder.items() if added.special}
    plain = [token for token in range(len(frame.tokenizer)) if token not in control]
    writers = _writers(parameters.play)
    recalls = [
        recall(
            seed,
            number,
            facts=options.facts,
            longest_name=options.longest_name,
            write=writers[number % len(writers)],
        )
        for number in range(options.sequences)
    ]
    sequences_by_kind = {
        REPETITIONS: [
            repetition(seed, number, plain, options.longest_span, options.repetition_tokens)
            for number in range(options.sequences)
        ],
        RECALLS: [conversation_sequence(each, frame) for each in recalls],
    }
    fitting = {
        name: [each for each in sequences if len(each.tokens) <= parameters.context_tokens]
        for name, sequences in sequences_by_kind.items()
    }
    return {name: SequenceBatch.of(sequences) for name, sequences in fitting.items()}


def _writers(play: Mapping[str, PlayParameters]) -> list[Callable[[str, str], str]]:
    """How the reply to a question for a name is written, in every format of the worlds: the name is the thought.

    The search format writes its world's two actions alone, so there the value is searched for, or answered.
    """

    def writer(form: Format, pattern: str) -> Callable[[str, str], str]:
        return lambda name, value: form.write(ScriptedAction(name, (pattern.format(value),)))

    forms = {each.agent.format: make_format(each.agent.format, the_world(each.world)) for each in play.values()}
    patterns = {"search": ("search[{}]", "answer[{}]")}
    return [writer(form, each) for name, form in sorted(forms.items()) for each in patterns.get(name, ("{}",))]
