"""What base policies are trained on: one tokenizer for all worlds, demonstrations, and sequences that teach copying.

Copying: a policy that learned from a few thousand demonstrations knows their names by heart and cannot repeat a new
one, and no reward teaches it, since it never does so by chance. What it lacks is an attention head that looks for the
earlier place at which the present token stood, and takes what followed there (Olsson et al. 2022, "In-context learning
and induction heads"). Such heads appear suddenly, in 1,000 steps of 24 recalls, and in a mixture with all worlds' texts
not at all in as many:

* **recalls**: facts about made-up names, `NAME: VALUE`, and questions for them, as observations and replies;
* **repetitions**: a random span of tokens, then pieces of it among other random tokens. Of each piece all tokens but
  the first are trained on, since nothing predicts where a piece begins. What lies between pieces has a random length:
  where a span comes again at a fixed distance, a policy learns the distance, and nothing of copying.

Every draw is a function of the seed and the number of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lab.pretraining.configuration import Copying
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
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.data.conversations import Conversation, ConversationExchange
from turnwise.policy.tokenizer import ChatFrame, load_frame, train_tokenizer
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
        even = [text for name, each in texts.items() for text in _draw_up_to(name, each, fewest)]
        tags = list(dict.fromkeys(tag for name in parameters.formats for tag in format_class(name).tags))
        train_tokenizer(even, parameters.vocabulary, tags).save_pretrained(draft.folder)
    return draft.reference


def _draw_up_to(name: str, texts: list[str], characters: int) -> list[str]:
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
        name: _truncate(sequences_to_imitate(play, tokenizer, demonstrations[name]), parameters.context_tokens)
        for name, play in sorted(parameters.play.items())
    }
    sources = {name: _train_on_observations(name, each, parameters) for name, each in sources.items()}
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


def _truncate(sequences: SequenceBatch, longest: int) -> SequenceBatch:
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


def _train_on_observations(name: str, sequences: SequenceBatch, parameters: CorpusParameters) -> SequenceBatch:
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


VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
LETTERS = VOWELS + CONSONANTS
DIGITS = "0123456789"


LONGEST_GAP = 6
"""Most other tokens between two pieces of a repetition."""


def repetition(seed: int, number: int, tokens: Sequence[int], longest: int, length: int) -> TokenSequence:
    """A span of 4 to `longest` different random `tokens`, then pieces of it among others, in all `length` tokens."""
    draw = seeding.generator(seed, "repetition", number)
    span = draw.choice(tokens, size=draw.integers(4, longest + 1), replace=False)
    parts, trained = [span], [np.zeros(len(span), dtype=bool)]
    while sum(map(len, parts)) < length:
        gap = draw.choice(tokens, size=draw.integers(0, LONGEST_GAP + 1))
        first = draw.integers(0, len(span) - 1)
        piece = span[first : draw.integers(first + 2, len(span) + 1)]
        parts += [gap, piece]
        trained += [np.zeros(len(gap), dtype=bool), np.arange(len(piece)) > 0]
    return _sequence(np.concatenate(parts)[:length], np.concatenate(trained)[:length])


def _sequence(tokens: NDArray[Any], trained: NDArray[np.bool_]) -> TokenSequence:
    turn_of_token = np.where(trained, 0, -1)
    return TokenSequence(tuple(tokens.tolist()), tuple(turn_of_token.tolist()), (0.0,) * len(tokens))


def recall(seed: int, number: int, *, facts: int, longest_name: int, write: Callable[[str, str], str]) -> Conversation:
    """Facts `NAME: VALUE` about 2 to `facts` made-up names, and one to three questions for their values, a turn each.

    `write(name, value)` is the reply to the question for a name.
    """
    draw = seeding.generator(seed, "recall", number)
    count = int(draw.integers(2, facts + 1))
    names = _distinct(draw, count, longest_name)
    values = [made_up_name(draw, longest_name) for _ in names]
    facts_text = "\n".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    exchanges = []
    for turn, place in enumerate(draw.integers(count, size=draw.integers(1, 4)).tolist()):
        question = f"{names[place]}?"
        observation = question if turn else f"{facts_text}\n{question}"
        exchanges.append(ConversationExchange(observation, write(names[place], values[place])))
    return Conversation(None, tuple(exchanges))


def made_up_name(draw: np.random.Generator, longest: int) -> str:
    """A name of 2 to `longest` characters: syllables, arbitrary letters or digits; one in four has two words."""
    words = [_word(draw, longest)]
    if longest >= 8 and draw.random() < 0.25:
        words = [word[: (longest - 1) // 2] for word in (*words, _word(draw, longest))]
    return " ".join(words)


def _word(draw: np.random.Generator, longest: int) -> str:
    length = int(draw.integers(2, longest + 1))
    kind = draw.random()
    if kind < 0.15:
        return "".join(draw.choice(list(DIGITS), size=length))
    if kind < 0.4:
        return "".join(draw.choice(list(LETTERS), size=length))
    alphabets = [CONSONANTS, VOWELS] if draw.random() < 0.5 else [VOWELS, CONSONANTS]
    word = "".join(str(draw.choice(list(alphabets[place % 2]))) for place in range(length))
    return word.capitalize() if draw.random() < 0.5 else word


def _distinct(draw: np.random.Generator, count: int, longest: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names[made_up_name(draw, longest)] = None
    return list(names)
