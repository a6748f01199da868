"""A small corpus on the frozen lake, for the tests of the stages that make base policies."""

from __future__ import annotations

from stage_samples import Small

from lab.pretraining.configuration import Copying
from lab.pretraining.corpus import CorpusParameters, corpus
from turnwise.store import Reference

COPYING = Copying(
    sequences=20,
    longest_span=8,
    repetition_tokens=20,
    facts=4,
    longest_name=6,
    weight=1.0,
)


def small_corpus(small: Small, **changes: object) -> Reference:
    """The corpus of the small demonstrations, and of twenty sequences of each kind that teach copying."""
    values: dict[str, object] = {
        "seed": 0,
        "context_tokens": 256,
        "observed_share": 0.5,
        "copying": COPYING,
        "play": {"lake": small.play},
        **changes,
    }
    return corpus.fn(
        CorpusParameters.model_validate(values),
        tokenizer=small.tokenizer,
        demonstrations={"lake": small.demonstrations},
    )
