"""Tokenizers with the chat templates of published models, whose texts TRL ships."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from turnwise.policy.tokenizer import train_tokenizer

CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>")
GEMMA = ("<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>")
TEXTS = ["<think>I look it up.</think><answer>capital of France</answer>", "The capital of France is Paris, +33."] * 20


@dataclass(frozen=True)
class Published:
    """A family of models: its template's name in TRL, its control tokens, and what ends a text."""

    template: str
    control_tokens: tuple[str, ...]
    end: str
    end_of_text: str
    begin: str | None = None


FAMILIES = {
    "qwen2.5": Published("qwen2_5", CHATML, "<|im_end|>", "<|endoftext|>"),
    "qwen3": Published("qwen3", CHATML, "<|im_end|>", "<|endoftext|>"),
    "qwen3-2507": Published("qwen3_instruct_2507", CHATML, "<|im_end|>", "<|endoftext|>"),
    "llama3": Published("llama3", LLAMA, "<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"),
    "llama3.1": Published("llama3_1", LLAMA, "<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"),
    "llama3.2": Published("llama3_2", LLAMA, "<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"),
    "gemma2": Published("gemma", GEMMA, "<end_of_turn>", "<eos>", "<bos>"),
    "gemma3": Published("gemma3", GEMMA, "<end_of_turn>", "<eos>", "<bos>"),
}


def template_of(family: str) -> str:
    """The family's chat template."""
    spec = find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{FAMILIES[family].template}.jinja").read_text()


def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """A small tokenizer with the family's control tokens and template; it ends a text as the family's base model."""
    published = FAMILIES[family]
    tokenizer = copy.deepcopy(_trained())
    tokenizer.add_special_tokens({"additional_special_tokens": list(published.control_tokens)})
    tokenizer.bos_token, tokenizer.eos_token = published.begin, published.end_of_text
    tokenizer.chat_template = template_of(family)
    return tokenizer


@cache
def _trained() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, 400, ["<think>", "</think>"])
