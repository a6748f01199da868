"""What credit rules make of rollouts that another system has written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from turnwise.config.overlays import parse_setting
from turnwise.config.schema import Credit, RewardSection
from turnwise.credit import CreditBatch, estimator_of, rollout_advantages
from turnwise.credit.batch import NEEDS, RESCORED
from turnwise.credit.selection import trainable
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.imported_rollouts import Imported, RolloutFormat, read_rollouts
from turnwise.data.trajectory import trajectory_arrays
from turnwise.errors import ConfigurationError, CreditError
from turnwise.records.what_if import SHOWN, WhatIfResult, most_different, of_turns, side_by_side
from turnwise.results.report_data import Sample
from turnwise.results.what_if import WhatIf, compare_rules
from turnwise.suggestions import unknown
from turnwise.world import Reward

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NO_WEIGHTS: Mapping[str, float] = MappingProxyType({})
RULES = ("grpo", "rloo", "mt-grpo", "gigpo")
"""What is compared where no rule is named."""
OF_A_POLICY = ("values", "greedy_rewards", *RESCORED)
"""What a rule may need that no file of rollouts has, but a policy or a critic."""


def credit_rollouts(
    files: str | Path | Sequence[str | Path],
    rules: Sequence[str] = (),
    *,
    format: RolloutFormat | None = None,
    tokenizer: str | Path | None = None,
    weights: Mapping[str, float] = NO_WEIGHTS,
    shown: int = SHOWN,
) -> WhatIfResult:
    """What credit rules make of rollouts that another system has written. Nothing is computed with a policy.

    Args:
        files: files or folders of one format, see `turnwise.data.imported_rollouts`.
        rules: names of credit rules, each with options as in `"mt-grpo rule=paper"`; by default four common ones. The
            others are compared with the first.
        format: its name; None: it is known by the first row.
        tokenizer: a folder with a tokenizer.json, which counts and spells replies; None: words are counted.
        weights: of rewards, in place of the file's own.
        shown: about how many episodes the page shows.

    Raises:
        ConfigurationError: a row of a file is wrong (with file, row and field), or no rule can be applied.
    """
    paths = [Path(each) for each in ([files] if isinstance(files, str | Path) else files)]
    credits = read_rules(rules or RULES)
    imported = read_rollouts(paths, format, None if tokenizer is None else read_tokenizer(Path(tokenizer)))
    sections = reward_sections(imported, weights)
    advantages, left_out = credit_imported(imported, credits, sections)
    groups = [each.group for each in imported.trajectories]
    of_groups = f"{count} groups" if (count := len(set(groups))) > 1 else "1 group"
    named = ", ".join(f"{name} ({each.level}, weight {each.weight:g})" for name, each in sections.items())
    report = WhatIf(
        title=f"What if: {paths[0].name}",
        rollout=f"{len(groups)} episodes in {of_groups} of {', '.join(map(str, paths))}, read as {imported.format}. "
        f"Rewards: {named}.",
        rules=compare_rules({name: of_turns(each) for name, each in advantages.items()}),
        notes=[
            "There is no policy here, and so no gradient: credit needs rewards, groups, turns and lengths alone.",
            f"Lengths are counted in {imported.counted}.",
            *imported.notes,
        ],
        left_out=left_out,
    )
    of_file = {name: Reward("", each.level, each.weight) for name, each in sections.items()}
    rewards = {name: of_file for name in advantages}  # noqa: C420
    samples = {
        index: Sample(f"episode {each.replica + 1}", each, None, {}) for index, each in enumerate(imported.trajectories)
    }
    chosen = {index: samples[index] for index in most_different(advantages, groups, shown)}
    return WhatIfResult(
        report,
        side_by_side(samples, advantages, rewards),
        side_by_side(chosen, advantages, rewards),
        paths[0].stem,
    )


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
        raise ConfigurationError(
            f"--tokenizer must be a folder with a tokenizer.json; found none in {folder}", "TW-missing-tokenizer"
        )
    return Tokenizer.from_file(str(file))


def reward_sections(imported: Imported, weights: Mapping[str, float]) -> dict[str, RewardSection]:
    """The rewards of a file with these weights in place of its own. Raises ConfigurationError for one it has not."""
    for name in weights:
        if name not in imported.rewards:
            raise ConfigurationError(f"--weight: {unknown(name, imported.rewards)}", "TW-unknown-reward")
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
            + "; ".join(f"{title}: {reason}" for title, reason in left_out.items()),
            "TW-no-applicable-rule",
        )
    return advantages, left_out
