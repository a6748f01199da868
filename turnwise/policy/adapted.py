"""The policy of an adapter as one model: the weights that it belongs to, and the adapter, merged for who needs all.

A learner with an adapter saves the adapter alone. Engines, exports and whoever loads a policy as a whole take both
folders: `base` holds the weights in Hugging Face's layout, `policy` the adapter and the configuration.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.policy.adapter import add_adapter, restore_adapter, saved_adapter
from turnwise.policy.model import aligned, forget_contradictions, write_merged
from turnwise.policy.model_files import model_files


def load_adapted(base: Path, policy: Path) -> PreTrainedModel:
    """The model of an adapter's policy on the CPU, for its merged weights (`turnwise.policy.model.merged_weights`).

    These are the learner's to the bit: the frozen weights are rounded to the precision that it computed in.
    """
    settings = saved_adapter(policy)
    precision = getattr(torch, json.loads((policy / "config.json").read_text(encoding="utf-8"))["dtype"])
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(base), dtype=precision, attn_implementation="sdpa", trust_remote_code=False
    )
    forget_contradictions(model)
    add_adapter(model, settings)
    restore_adapter(model, policy, settings)
    return aligned(model.eval())


def write_whole_policy(base: Path, policy: Path, folder: Path) -> None:
    """Write an adapter's policy into `folder` in Hugging Face's layout, merged, as a policy without one is saved."""
    write_merged(load_adapted(base, policy), folder)
    for file in model_files(policy):
        shutil.copyfile(file, folder / file.name)
