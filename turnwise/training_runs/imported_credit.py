"""What credit rules make of rollouts that another system has written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config.overlays import parse_setting
from turnwise.config.schema import Credit, RewardSection
from turnwise.credit import CreditBatch, estimator_of, rollout_advantages
from turnwise.credit.batch import NEEDS, RESCORED
from turnwise.credit.selection import trainable
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.imported_rollouts import Imported
from turnwise.data.trajectory import trajectory_arrays
from turnwise.errors import ConfigurationError, CreditError
from turnwise.suggestions import unknown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RULES = ("grpo", "rloo", "mt-grpo", "gigpo")
"""What is compared where no rule is named."""
OF_A_POLICY = ("values", "greedy_rewards", *RESCORED)
"""What a rule may need that no file of rollouts has, but a policy or a critic."""


def read_rules(named: Sequence[str]) -> dict[str, Credit]:
    """Credit rules by their titles: `NAME`, or `NAME OPTION=VALUE ...`. Raises ConfigurationError for an unknown."""
    rules = {}
    for title in named:
        name, *options = title.split()
        try:
            estimator_of(name)
        except CreditError as error:
            raise ConfigurationError(str(error).replace("credit.estimator", "--rule", 1)) from error
        rules[title] = Credit(estimator=name, options=dict(map(parse_setting, options)))
    return rules


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder. Raises ConfigurationError where it has no tokenizer.json."""
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigurationError(f"--tokenizer must be a folder with a tokenizer.json; found none in {folder}")
    return Tokenizer.from_file(str(file))


def reward_sections(imported: Imported, weights: Mapping[str, float]) -> dict[str, RewardSection]:
    """The rewards of a file with these weights in place of its own. Raises ConfigurationError for one it has not."""
    for name in weights:
        if name not in imported.rewards:
            raise ConfigurationError(f"--weight: {unknown(name, imported.rewards)}")
    return {
        name: RewardSection(level=level, weight=weights.get(name, weight))
        for name, (level, weight) in imported.rewards.items()
    }


def credit_imported(
    imported: Imported, rules: Mapping[str, Credit], rewards: Mapping[str, RewardSection]
) -> tuple[dict[str, dict[int, TrajectoryAdvantages]], dict[str, str]]:
    """The advantages of each trajectory by rule, and why rules are left out that cannot be applied.

    Raises ConfigurationError where none can.
    """
    arrays = trajectory_arrays(imported.trajectories)
    advantages: dict[str, dict[int, TrajectoryAdvantages]] = {}
    left_out: dict[str, str] = {}
    for title, credit in rules.items():
        estimator = estimator_of(credit.estimator)
        if lacking := [NEEDS[need] for need in estimator.needs if need in OF_A_POLICY]:
            left_out[title] = f"it needs {' and '.join(lacking)}, which no file of rollouts has"
            continue
        kept = trainable(arrays, None, grouped=estimator.grouped)
        if not kept:
            left_out[title] = "it compares within groups, and no group has two episodes"
            continue
        try:
            batch = CreditBatch.of(arrays.select(kept), rewards)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                advantages[title] = rollout_advantages(kept, batch, credit).by_trajectory()
        except CreditError as error:
            left_out[title] = str(error)
    if not advantages:
        raise ConfigurationError(
            "a rule must be one that can be applied to these rollouts; "
            + "; ".join(f"{title}: {reason}" for title, reason in left_out.items())
        )
    return advantages, left_out
