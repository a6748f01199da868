"""The policy of an adapter as one model: the weights that it belongs to, and the adapter, merged for who needs all.

A learner with an adapter saves the adapter alone. Engines, exports and whoever loads a policy as a whole take both
folders: `base` holds the weights in Hugging Face's layout, `policy` the adapter and the configuration.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers import PreTrainedModel

from turnwise.policy.adapter import restore_adapter, saved_adapter
from turnwise.policy.model import aligned, named_precision, read_model, write_merged
from turnwise.policy.model_files import model_files


def load_adapted(base: Path, policy: Path) -> PreTrainedModel:
    """The model of an adapter's policy on the CPU, for its merged weights (`turnwise.policy.model.merged_weights`).

    These are the learner's to the bit: the frozen weights are rounded to the precision that it computed in.
    """
    settings = saved_adapter(policy)
    model = read_model(base, named_precision(policy), settings)
    restore_adapter(model, policy, settings)
    return aligned(model.eval())


def write_whole_policy(base: Path, policy: Path, folder: Path) -> None:
    """Write an adapter's policy into `folder` in Hugging Face's layout, merged, as a policy without one is saved."""
    write_merged(load_adapted(base, policy), folder)
    for file in model_files(policy):
        shutil.copyfile(file, folder / file.name)
