"""The tokenizer of a model's folder without transformers, whose import takes seconds: enough of it to check a template.

`FileTokenizer` has the methods and attributes of transformers' tokenizers that `turnwise.policy.tokenizer.ChatFrame`
calls, and computes them from `tokenizer.json`, `tokenizer_config.json` and the chat template's files. A plan and the
check before a run use it; what is sampled and trained is encoded by transformers' own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer

from turnwise.errors import ConfigurationError, first_line
from turnwise.policy.chat_template import without_generation_tags

TEMPLATE_FILE, TEMPLATES = "chat_template.jinja", "additional_chat_templates"
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The keys of `tokenizer_config.json` under which it names control tokens; a template reads them by these names."""


VOCABULARY_FILES = ("tokenizer.json", "vocab*", "*.model", "*.tiktoken", "tekken.json")
"""The names of files in which transformers finds a tokenizer's vocabulary."""


def require_vocabulary_file(folder: Path) -> None:
    """Raise ConfigurationError where the folder has no tokenizer: transformers makes one of no tokens, and goes on."""
    if not any(path.is_file() for pattern in VOCABULARY_FILES for path in folder.glob(pattern)):
        raise ConfigurationError(
            f"policy.model {folder} must hold its tokenizer, tokenizer.json; found none: save that of the model which "
            f"it was made from there, AutoTokenizer.from_pretrained(MODEL).save_pretrained({str(folder)!r})",
            "TW-missing-tokenizer",
        )


class FileTokenizer:
    """See the module. Raises ConfigurationError for files that cannot be read."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            path = folder / "tokenizer_config.json"
            configuration = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            listed = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")).get("added_tokens", [])
            self.chat_template = _chat_template(folder, configuration)
            self._named = {name: _text(configuration[name]) for name in NAMED_TOKENS if configuration.get(name)}
            # Control tokens that only the configuration names become such in the tokenizer, too.
            self._tokenizer.add_special_tokens([AddedToken(text, special=True) for text in self._named.values()])
        except Exception as error:  # the tokenizers' own errors are plain ones
            raise ConfigurationError(
                f"policy.model {folder}: its tokenizer must be readable; {first_line(error)}", "TW-unreadable-model"
            ) from error
        further = [
            *_read_tokens(configuration, "extra_special_tokens"),
            *_read_tokens(configuration, "additional_special_tokens"),
        ]
        self._special = {*self._named.values(), *further, *(each["content"] for each in listed if each.get("special"))}

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """The tokens that were added to the vocabulary, by id, each with whether it is a control token."""
        return {
            number: AddedToken(token.content, special=token.content in self._special)
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
        }

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text; None where none is named."""
        text = self._named.get("eos_token")
        return None if text is None else self._tokenizer.token_to_id(text)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def __call__(self, text: str, *, split_special_tokens: bool, **_: Any) -> Mapping[str, list[int]]:
        """The tokens of a text, under `input_ids`; with `split_special_tokens` none of them is a control token."""
        self._tokenizer.encode_special_tokens = split_special_tokens
        return {"input_ids": list(self._tokenizer.encode(text, add_special_tokens=False).ids)}

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        """The text of tokens, control tokens included."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The conversation as the template renders it, as transformers does."""
        template = self.chat_template
        if isinstance(template, Mapping):
            template = template["tool_use" if tools is not None and "tool_use" in template else "default"]
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # without Jinja's escapes for HTML
        environment.globals["raise_exception"] = _raise
        return environment.from_string(without_generation_tags(template or "")).render(
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **{**self._named, **variables},
        )


def _chat_template(folder: Path, configuration: Mapping[str, Any]) -> str | dict[str, str] | None:
    """The template of its own file, or of `tokenizer_config.json`; several by name; None where there is none."""
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{TEMPLATES}/*.jinja"))}
    if (folder / TEMPLATE_FILE).is_file():
        templates = {"default": (folder / TEMPLATE_FILE).read_text(encoding="utf-8"), **templates}
    if not templates:
        entry = configuration.get("chat_template")
        if not isinstance(entry, list):
            return entry
        return {each["name"]: each["template"] for each in entry}
    return templates["default"] if list(templates) == ["default"] else templates


def _text(token: Any) -> str:
    """The text of a token, which a configuration gives as a text or as an object."""
    return str(token["content"] if isinstance(token, Mapping) else token)


def _read_tokens(configuration: Mapping[str, Any], key: str) -> list[str]:
    entries = configuration.get(key) or []
    return [_text(token) for token in (entries.values() if isinstance(entries, Mapping) else entries)]


def _raise(message: str) -> None:
    raise TemplateError(message)
