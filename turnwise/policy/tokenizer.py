"""Tokenization: training a small tokenizer, and building contexts from a chat template by concatenation of tokens.

A conversation is tokens throughout. `ChatFrame` extracts once, from any tokenizer's chat template, the tokens that
stand *between* the texts of messages; after that, a context grows by concatenation only

    opening(system, observation) + reply + continuation(observation, reply) + reply + ...

so sampled tokens are never decoded and encoded again. Texts of the world are encoded so that they cannot contain
control tokens: an observation with the text `<|im_end|>` becomes just those characters.

A reply ends at the token with which the template ends an assistant's message, and at every other end token that the
model was published with: the tokenizer's, and those of `generation_config.json`, one or a list. A base model that was
never trained on its template says `<|endoftext|>` where the template says `<|im_end|>`; not to stop there would sample
every reply to its maximum length. The token stays in the context as it was sampled, followed by the template's own.

Earlier replies may be shown without their thoughts: `without_thought`.
"""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from turnwise.config.model_settings import smallest_vocabulary
from turnwise.errors import ConfigurationError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

MOST_TEXTS = 4096
"""Texts whose tokens, and replies whose texts, a conversation's frame remembers."""
GENERATION_FILE = "generation_config.json"
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The regular expression by which Qwen2's tokenizer splits text into words (every digit by itself). Merges never cross
these borders."""


def train_tokenizer(texts: Iterable[str], vocabulary_size: int, tags: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with Qwen's chat template, trained on `texts`, of at most `vocabulary_size` tokens.

    `tags` (such as `<think>`) become one token each, wherever they occur; unlike the control tokens they are ordinary
    text, which a prompt may contain. The role names of the chat template are one token each, unless the vocabulary has
    no room for a dozen merges. The same texts in the same order give the same tokenizer. Raises ConfigurationError for
    a vocabulary that is too small.
    """
    from transformers import PreTrainedTokenizerFast

    smallest = smallest_vocabulary(tags)
    if vocabulary_size < smallest:
        raise ConfigurationError(
            f"vocabulary_size must be at least {smallest} (256 bytes, 3 control tokens, {len(tags)} tags); "
            f"found {vocabulary_size}",
            "TW-small-vocabulary",
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(tags),
        special_tokens=[START, END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without(texts, [*tags, START, END, PAD]), trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _without(texts: Iterable[str], tokens: Sequence[str]) -> Iterator[str]:
    """The training texts: the role names, repeated so that they get merges, then `texts` without `tokens`.

    `tokens` are the tags and the control tokens: they are tokens already, so merges for their spelling would be wasted.
    """
    for role in ("system", "user", "assistant"):
        yield from itertools.repeat(role, 10_000)
    border = re.compile("|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)))
    for text in texts:
        yield from (piece for piece in border.split(text) if piece)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder in Hugging Face's layout."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def require_same_tokens(teacher: Path, policy: Path) -> None:
    """Raise ConfigurationError unless the tokenizers in these folders have the same tokens under the same numbers."""
    theirs, ours = (load_tokenizer(folder).get_vocab() for folder in (teacher, policy))
    if theirs != ours:
        differing = sum(ours.get(token) != number for token, number in theirs.items())
        raise ConfigurationError(
            "a teacher must have the tokens of the policy that learns from it, since it reads what that has sampled; "
            f"found {differing} of the {len(theirs)} tokens of {teacher.name} that the policy has otherwise or not at "
            "all: choose a teacher of the policy's family, or policy.model with the teacher's tokenizer",
            "TW-foreign-tokenizer",
        )


def load_frame(folder: Path) -> ChatFrame:
    """The chat frame of the tokenizer in `folder`, with the end tokens of the `generation_config.json` next to it.

    Raises ConfigurationError as `ChatFrame` does, and for end tokens that are no tokens of this tokenizer.
    """
    return ChatFrame(load_tokenizer(folder), generation_end_tokens(folder))


def generation_end_tokens(folder: Path) -> tuple[int, ...]:
    """The end tokens that `generation_config.json` in `folder` names, one or a list; none where it names none."""
    path = folder / GENERATION_FILE
    end_tokens = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
    if end_tokens is None:
        return ()
    tokens = end_tokens if isinstance(end_tokens, list) else [end_tokens]
    if not all(type(token) is int for token in tokens):
        raise ConfigurationError(
            f"eos_token_id of {path} must be a token id, or a list of them; found {end_tokens!r}: correct it",
            "TW-end-token",
        )
    return tuple(tokens)


class ChatFrame:
    """The tokens that a chat template puts around messages, and the encoding of texts between them.

    The tokens are taken from the template's own rendering of messages with marker texts, so everything that it adds is
    kept (such as Qwen's default system message). Raises ConfigurationError when the tokenizer has no template, or one
    that does not end a reply with a control token, and for `further_end_tokens` that it does not have.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, further_end_tokens: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise ConfigurationError(
                "the policy's tokenizer must have a chat template; found none: choose an instruction-tuned model, or "
                "put a chat_template.jinja into its folder",
                "TW-no-chat-template",
            )
        self._control_tokens = frozenset(
            token for token, added in tokenizer.added_tokens_decoder.items() if added.special
        )
        self._before_reply, close, question_to_prompt = self._between_replies()
        self.end_token: int = close[0]
        """The template's first token after an assistant's message, with which a scripted reply ends."""
        published = [token for token in (tokenizer.eos_token_id, *further_end_tokens) if token is not None]
        self.end_tokens: tuple[int, ...] = tuple(dict.fromkeys([self.end_token, *published]))
        """The tokens at which a sampled reply ends: the template's, the tokenizer's, then the further ones."""
        if strangers := [token for token in self.end_tokens if not 0 <= token < len(tokenizer)]:
            raise ConfigurationError(
                f"end tokens must be tokens of the policy's tokenizer, below {len(tokenizer)}; {GENERATION_FILE} names "
                f"{strangers}: it is another model's",
                "TW-foreign-tokenizer",
            )
        self._after_end, self._after_observation = close[1:], question_to_prompt
        self._takes_system_messages = self._shows_system_message()
        self._opening_pieces = lru_cache(self._pieces_around)
        # A tokenizer takes a tenth of a millisecond for a short text, and worlds and policies repeat themselves.
        self._text = lru_cache(MOST_TEXTS)(self._encode)
        self._reply_text = lru_cache(MOST_TEXTS)(self._decode)

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """The tokens before the first reply: the system message if any, the observation, the assistant's header.

        A template without a role for the system, as Gemma 2's, has the system message at the beginning of the user's,
        before an empty line, where Gemma 3's template puts it too.
        """
        if system is not None and not self._takes_system_messages:
            system, observation = None, f"{system}\n\n{observation}"
        roles, texts = (("user",), (observation,)) if system is None else (("system", "user"), (system, observation))
        before, *pieces = self._opening_pieces(roles)
        tokens = list(before)
        for text, piece in zip(texts, pieces, strict=True):
            tokens += [*self._text(text), *piece]
        return tuple(tokens)

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """The tokens between `reply` and the next one, whether or not the observation answers a call of the reply.

        They begin with the template's end token unless the reply ends with it: a reply that was cut off, or that ended
        with another end token, is closed as the template closes a message.
        """
        return (*self._closing(reply), *self._after_end, *self._text(observation), *self._after_observation)

    def _closing(self, reply: Sequence[int]) -> tuple[int, ...]:
        return () if tuple(reply[-1:]) == (self.end_token,) else (self.end_token,)

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """The tokens before the next reply, with earlier `replies` as Qwen3's template shows them: without thoughts.

        `observations` has one text more than there are replies: the one that the next reply answers. Where a template
        begins a new reply with more than an earlier one (an empty thought), earlier ones are without it, too.
        """
        context = list(self.opening(system, observations[0]))
        for reply, observation in zip(replies, observations[1:], strict=True):
            del context[len(context) - len(self._after_observation) :]
            answer = without_thought(reply, self)
            context += [*self._before_reply, *answer, *self.continuation(observation, answer)]
        return tuple(context)

    def reply(self, text: str) -> tuple[int, ...]:
        """The tokens that the policy would have to sample for a scripted reply, the end token included."""
        return (*self._text(text), self.end_token)

    def decode(self, tokens: Sequence[int]) -> str:
        """A reply's text, without its end token. Invalid UTF-8 becomes U+FFFD."""
        return self._reply_text(tuple(tokens))

    def _decode(self, tokens: tuple[int, ...]) -> str:
        content = tokens[:-1] if tokens and tokens[-1] in self.end_tokens else tokens
        text: str = self.tokenizer.decode(list(content), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a message's text, which never include control tokens.

        Raises ConfigurationError for a tokenizer that makes control tokens of text nevertheless.
        """
        encodable = text.encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer(encodable, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        smuggled = self._control_tokens.intersection(tokens)
        if smuggled:
            raise ConfigurationError(
                f"a message's text must not become control tokens; this tokenizer made {sorted(smuggled)} of {text!r}: "
                "it does not keep to split_special_tokens and cannot be used",
                "TW-text-becomes-control",
            )
        return tuple(tokens)

    def _frame(self, text: str) -> tuple[int, ...]:
        """The tokens of the template's own text, in which control tokens are encoded as such."""
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"])

    def _shows_system_message(self) -> bool:
        """Whether the template accepts a system message and shows it."""
        messages = [{"role": "system", "content": _marker(0)}, {"role": "user", "content": _marker(1)}]
        try:
            return _marker(0) in self._apply_template(messages)
        except TemplateError:
            return False

    def _between_replies(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The tokens before an earlier reply, after it, and between an observation and a new reply."""
        _, before, close, prompt = self._pieces_around(["user", "assistant", "user"])
        if not close or close[0] not in self._control_tokens:
            raise ConfigurationError(
                "the chat template must end an assistant's message with a control token, at which sampling can stop; "
                f"found {self.tokenizer.decode(list(close))!r} after it",
                "TW-template-without-end",
            )
        return before, close, prompt

    def _pieces_around(self, roles: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The tokens before, between and after messages of these roles, up to where a reply begins."""
        rendered = self._render([{"role": role, "content": _marker(number)} for number, role in enumerate(roles)])
        return tuple(self._frame(piece) for piece in _split(rendered, len(roles)))

    def _template_arguments(self) -> Mapping[str, Any]:
        """What the template is given besides the messages."""
        return {}

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return self._apply_template(messages)
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigurationError(
                f"the chat template must accept messages of {roles}; it says: {error}", "TW-template-refuses-roles"
            ) from error

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        rendered: str = self.tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=_refuse_the_date,
            **self._template_arguments(),
        )
        return rendered


def _refuse_the_date(*_: object) -> str:
    """Take the place of the function by which a template asks for the time."""
    raise ConfigurationError(
        "a prompt must be the same on every day; the chat template shows today's date: fix it in "
        "policy.chat_template_kwargs, such as {date_string: 26 Jul 2024}",
        "TW-template-shows-date",
    )


def _marker(number: int) -> str:
    """A marker text for a message, which no template contains, trims or rewrites."""
    return f"turnwise-marks-message-{number}"


def _split(rendered: str, messages: int) -> list[str]:
    pieces = re.split("|".join(_marker(number) for number in range(messages)), rendered)
    if len(pieces) != messages + 1:
        raise ConfigurationError(
            f"the chat template must show each of {messages} messages exactly once; it rendered {rendered!r}",
            "TW-template-loses-messages",
        )
    return pieces


THOUGHT_END = "</think>"


def without_thought(reply: tuple[int, ...], speller: ChatFrame) -> tuple[int, ...]:
    """The tokens of a reply after its thought: those that were sampled, where one of them begins there.

    As Qwen3's chat template shows earlier replies: up to the last `</think>` all goes, with the line breaks after it. A
    reply without that tag stays whole. Where the thought ends inside a token, the rest of the text is encoded again.
    The end token stays as it was sampled.
    """
    text = speller.decode(reply)
    _, tag, rest = text.rpartition(THOUGHT_END)
    if not tag:
        return reply
    answer = rest.lstrip("\n")

    def characters(count: int) -> int:
        return len(speller.decode(reply[:count]))

    dropped = bisect_left(range(len(reply)), len(text) - len(answer), key=characters)
    if speller.decode(reply[dropped:]) == answer:
        return reply[dropped:]
    end = reply[-1:] if reply[-1] in speller.end_tokens else ()
    return (*speller.reply(answer)[:-1], *end)
