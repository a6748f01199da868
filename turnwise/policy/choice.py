"""Checks of the configuration's section `policy`, before any compute and without loading torch.

`turnwise.policy.published` checks the weights and the tokenizer of a published model, before the first stage.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence

from turnwise.config.model_settings import (
    LINEAR_LAYERS,
    Adapter,
    require_heads,
    require_kernels,
    smallest_vocabulary,
)
from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.policy.gguf_sources import is_gguf, require_named_gguf, wheel_models
from turnwise.policy.pretrained import model_directory
from turnwise.policy.weight_files import require_weights_form
from turnwise.suggestions import unknown

SCRATCH = "scratch"
HUB_ID = re.compile(r"(?=.{1,96}$)[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
"""The repository ids that the hub accepts."""


def require_policy(
    policy: Policy, adapter: Adapter | None, engine: str, tags: Sequence[str], *, needs_functions: bool = False
) -> None:
    """Raise ConfigurationError for a policy that cannot be made or found, or that the engine cannot sample from.

    `tags` are the tags of `agent.format`, which the vocabulary of a policy from scratch must have room for;
    `needs_functions`: whether that format needs a chat template that shows functions, which such a policy has not.
    """
    if policy.model == SCRATCH:
        _require_size(policy, engine, tags)
        if policy.revision is not None:
            raise ConfigurationError(
                "policy.revision is one of a hub repository, and policy.model is scratch; found "
                f"{policy.revision!r}: leave it out, or name the repository in policy.model",
                "TW-revision-without-hub",
            )
        if policy.chat_template_kwargs:
            raise ConfigurationError(
                "policy.chat_template_kwargs are switches of a published model's chat template, and policy.model is "
                f"scratch, whose template has none; found {', '.join(policy.chat_template_kwargs)}: leave it out",
                "TW-template-switch",
            )
        if needs_functions:
            raise ConfigurationError(
                "agent.format native-tools needs a published model, whose chat template shows functions; found "
                "policy.model: scratch: set agent.format to tool-json",
                "TW-functions-not-shown",
            )
    elif is_gguf(policy.model):
        require_named_gguf(policy.model)
    elif not policy.model.strip() or (folder := model_directory(policy.model)) is None:
        _require_hub_id(policy.model)
    else:
        require_weights_form(folder, policy.model)
    if adapter is not None and policy.model == SCRATCH:
        for name in adapter.target_modules:
            if name not in LINEAR_LAYERS:
                raise ConfigurationError(
                    f"optimization.adapter.target_modules of a policy from scratch: {unknown(name, LINEAR_LAYERS)}",
                    "TW-adapter-modules",
                )


def _require_size(policy: Policy, engine: str, tags: Sequence[str]) -> None:
    """Raise ConfigurationError unless the sizes of a policy from scratch fit each other, the engine and the format."""
    try:
        require_heads(policy.hidden, policy.heads, policy.heads)
        require_kernels(policy.hidden, policy.heads, engine)
    except ConfigurationError as error:
        raise ConfigurationError(f"policy.heads, policy.hidden: {error}") from error
    smallest = smallest_vocabulary(tags)
    if policy.vocabulary < smallest:
        raise ConfigurationError(
            f"policy.vocabulary must be at least {smallest}: 256 bytes, 3 control tokens and the {len(tags)} tags of "
            f"agent.format; found {policy.vocabulary}",
            "TW-small-vocabulary",
        )


def _require_hub_id(model: str) -> None:
    """Raise ConfigurationError unless `model`, which is no folder, can be the id of a model on the hub."""
    if os.path.exists(model) or not HUB_ID.fullmatch(model):
        actual = "a file" if os.path.exists(model) else "no such folder"
        raise ConfigurationError(
            "policy.model must be 'scratch', a folder that is there, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct; "
            f"found {actual} at {model!r}",
            "TW-unknown-model",
        )
    words = [SCRATCH, *wheel_models()]
    if any(difflib.SequenceMatcher(None, model, word).ratio() > 0.8 for word in words):
        raise ConfigurationError(f"policy.model: {unknown(model, words)}", "TW-unknown-model")
