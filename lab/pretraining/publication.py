"""A trained base policy as files of the package: weights in bfloat16, the tokenizer, and a card."""

from __future__ import annotations

import shutil

from tasks.stage import stage
from turnwise.config.schema import Section
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import MANIFEST, Reference, default_store


class PublicationParameters(Section):
    """A published base policy has no parameters: it is what its inputs are."""


@stage("base_policy")
def base_policy(parameters: PublicationParameters, *, policy: Reference, tokenizer: Reference) -> Reference:
    """The policy with its weights rounded to bfloat16, half the size, and its tokenizer, in one folder.

    What was trained in float32 is evaluated as published, after rounding.
    """
    from turnwise.policy.publication import publish_weights

    with default_store().write("policy") as draft:
        publish_weights(default_store().folder(policy, MODEL_FILES), draft.folder)
        shutil.copytree(
            default_store().folder(tokenizer), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
    return draft.reference
