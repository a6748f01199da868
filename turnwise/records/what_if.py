"""Other credit and losses on a rollout that exists: which configuration that is, and what is shown of it.

Rollouts that another system has written are credited as they are.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.config.nested import dotted
from turnwise.config.overlays import parse_setting, read_yaml, with_value
from turnwise.config.schema import Credit, RewardSection
from turnwise.credit import CreditBatch, estimator_of, rollout_advantages
from turnwise.credit.batch import NEEDS, RESCORED
from turnwise.credit.selection import trainable
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.imported_rollouts import WORDS, Imported, RolloutFormat, read_rollouts
from turnwise.data.trajectory import trajectory_arrays
from turnwise.errors import ConfigurationError, CreditError
from turnwise.experiment import Experiment, build
from turnwise.health.record import HealthRecord
from turnwise.project import project_root
from turnwise.reporting.html.pages import Compared, write_what_if
from turnwise.results.report_data import Sample
from turnwise.results.what_if import ChangedSetting, WhatIf, compare_rules
from turnwise.store import default_store
from turnwise.suggestions import unknown
from turnwise.tracking.finding import RecordedRun
from turnwise.training_runs.state import changed

if TYPE_CHECKING:
    import pandas as pd
    from tokenizers import Tokenizer


SECTIONS = ("credit", "critic", "optimization", "rewards", "selection")
"""The sections that say what is made of a rollout. All others say how it is sampled, or with which policy."""
FIXED = ("optimization.adapter", "optimization.iterations", "optimization.method", "critic.trunk")
"""Keys of theirs that say which policy there is."""
OPTIONS_ARE_OF = (("credit", "estimator"), ("selection", "rule"))
"""Sections with `options`, and their key that says of which rule these are."""
SHOWN = 48
"""Default number of episodes on the page."""
Advantages = Mapping[str, Mapping[int, TrajectoryAdvantages]]
"""By rule and by trajectory."""


def other_experiment(
    run: RecordedRun, number: int, settings: Mapping[str, Any] | Iterable[str]
) -> tuple[Experiment, Experiment]:
    """The configuration with which a run learned from its rollout `number`, and that with these settings.

    Another rule of credit or selection begins with its own options, not with those of the run's rule.

    Raises ConfigurationError for an iteration that the run has not, for a setting that would have sampled another
    rollout or needs what the run does not have, and for settings that change nothing.
    """
    iterations = run.artifacts.iterations
    if not 1 <= number <= len(iterations):
        raise ConfigurationError(
            f"--iteration must be from 1 to {len(iterations)}, those of {run.name}; found {number}",
            "TW-unknown-iteration",
        )
    recorded = _learned_with(run, number)
    if recorded.optimization.method == "evolution":
        raise ConfigurationError(
            f"{run.name} imitated its successes (optimization.method: evolution), which no advantages say anything of: "
            "name a run that learned by reinforcement",
            "TW-what-if-evolution",
        )
    values: dict[str, Any] = recorded.model_dump(mode="json")
    changes = list(settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings))
    for section, rule in OPTIONS_ARE_OF:
        if dict(changes).get(f"{section}.{rule}", values[section][rule]) != values[section][rule]:
            values = with_value(values, f"{section}.options", {})  # those of another rule say nothing of this one
    for key, value in changes:
        before, values = values, with_value(values, key, value)
        if key.partition(".")[0] not in SECTIONS or key in FIXED or _fixed(values) != _fixed(before):
            raise ConfigurationError(
                f"a recorded rollout is not sampled again and has one policy: what-if takes keys of "
                f"{', '.join(SECTIONS)}, but for {', '.join(FIXED)}; found {key}: run an experiment with it",
                "TW-what-if-resamples",
            )
    other = build(values, like=recorded)
    if other == recorded:
        raise ConfigurationError(
            f"the settings must differ from those of {run.name}, e.g. -s credit.estimator=rloo; found "
            f"{'the same values' if changes else 'none'}",
            "TW-changes-nothing",
        )
    if other.has_critic and "values" not in iterations[number - 1]:
        raise ConfigurationError(
            f"credit.estimator {other.credit.estimator} needs a critic's values, and {run.name} learned without a "
            "critic: choose an estimator without one, or a run with one",
            "TW-no-critic",
        )
    if other.selection != recorded.selection and other.selection.rule == "mixed":
        raise ConfigurationError(
            "selection.rule mixed samples further groups until there are enough, and a recorded rollout has those that "
            "it has: choose another rule",
            "TW-scheme-with-mixed",
        )
    return recorded, other


def _fixed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `FIXED` keys, and of what is within them."""
    return {key: value for key, value in dotted(values).items() if key.startswith(FIXED)}


def _learned_with(run: RecordedRun, number: int) -> Experiment:
    """The configuration of a run's iteration: as it began, with what alarms had changed before."""
    artifacts = run.artifacts
    project = read_yaml(project_root() / "params.yaml")
    ablation = {**project["ablation"], "name": run.ablation or run.name, "seeds": [artifacts.seed]}
    experiment = build(
        {
            **{name: project[name] for name in ("storage", "tracking")},
            **artifacts.experiment,
            "ablation": {**ablation, "variants": [artifacts.variant]},
            "variants": {artifacts.variant: {}},
        }
    )
    for made_then in artifacts.iterations[: number - 1]:
        if "returned" in made_then:
            change = HealthRecord.read(default_store().folder(made_then["health"])).alarm.change
            experiment = experiment if change is None else changed(experiment, change)
    return experiment


@dataclass(frozen=True)
class WhatIfResult:
    """What other settings would make of a rollout: `report` in numbers, `episodes` with every rule's advantages."""

    report: WhatIf
    episodes: Sequence[Compared]
    """All episodes of the rollout, by rule."""
    shown: Sequence[Compared]
    """Those that the page shows, with the texts of their tokens."""
    name: str
    """Of its folder in `results/what-if`."""
    length_unit: str = "token"
    """What the length of a reply counts: words where another system's rollouts have no tokens."""

    def turns(self) -> pd.DataFrame:
        """One row per turn of each episode, with a column of advantages per rule."""
        import pandas as pd

        rows = []
        for index, episode in enumerate(self.episodes):
            trajectory = next(iter(episode.values())).trajectory
            for place in range(len(trajectory.turns)):
                turn_key = {"episode": index, "task": trajectory.task.id, "group": trajectory.group, "turn": place}
                values = {
                    name: None if sample.advantages is None else sample.advantages[place]
                    for name, sample in episode.items()
                }
                rows.append({**turn_key, **values})
        return pd.DataFrame(rows)

    def write(self, folder: str | Path | None = None) -> Path:
        """Write `what_if.json` and `what_if.html`, by default to `results/what-if/NAME`; returns the folder."""
        to = project_root() / "results" / "what-if" / self.name if folder is None else Path(folder)
        write_what_if(self.report, self.shown, len(self.episodes), to, self.length_unit)
        return to


def turn_advantages(advantages: Mapping[int, TrajectoryAdvantages]) -> dict[int, list[float]]:
    """By trajectory, the advantages of its turns."""
    return {index: each.turns for index, each in advantages.items()}


def differences(experiments: Mapping[str, Experiment]) -> list[ChangedSetting]:
    """The keys whose values differ between configurations."""
    values = {name: dotted(each.model_dump(mode="json")) for name, each in experiments.items()}
    keys = dict.fromkeys(key for each in values.values() for key in each)
    return [
        ChangedSetting(key, {name: json.dumps(each[key]) if key in each else "" for name, each in values.items()})
        for key in keys
        if len({json.dumps(each.get(key)) for each in values.values()}) > 1
    ]


def side_by_side(
    samples: Mapping[int, Sample], advantages: Advantages, rewards: Mapping[str, Mapping[str, RewardSection]]
) -> list[Compared]:
    """Each of these trajectories with the advantages of every rule, by its index in the rollout."""
    return [
        {
            name: sample.with_credit(rule_advantages.get(index), rewards[name])
            for name, rule_advantages in advantages.items()
        }
        for index, sample in samples.items()
    ]


def most_different(advantages: Advantages, groups: Sequence[int], limit: int) -> list[int]:
    """The trajectories of whole groups, first those about which rules differ most, at most `limit` of them.

    Rules differ in scale, so each is divided by its root mean square.
    """
    scaled = []
    for rule_advantages in advantages.values():
        flat = np.array([value for each in rule_advantages.values() for value in each.turns])
        size = float(np.sqrt((flat**2).mean())) if len(flat) and flat.any() else 1.0
        scaled.append({index: np.array(each.turns) / size for index, each in rule_advantages.items()})
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)

    def difference(group: int) -> float:
        rows = [[each[index] for each in scaled if index in each] for index in members[group]]
        return sum(float(np.ptp(np.stack(row), axis=0).sum()) for row in rows if len(row) > 1)

    selected: list[int] = []
    for group in sorted(members, key=difference, reverse=True):
        if selected and len(selected) + len(members[group]) > limit:
            break
        selected += members[group][:limit]
    return selected


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
    group_count = f"{count} groups" if (count := len(set(groups))) > 1 else "1 group"
    reward_list = ", ".join(f"{name} ({each.level}, weight {each.weight:g})" for name, each in sections.items())
    report = WhatIf(
        title=f"What if: {paths[0].name}",
        rollout=f"{len(groups)} episodes in {group_count} of {', '.join(map(str, paths))}, read as {imported.format}. "
        f"Rewards: {reward_list}.",
        rules=compare_rules({name: turn_advantages(each) for name, each in advantages.items()}),
        notes=[
            "There is no policy here, and so no gradient: credit needs rewards, groups, turns and lengths alone.",
            f"Lengths are counted in {imported.length_measure}.",
            *imported.notes,
        ],
        left_out=left_out,
    )
    rewards = dict.fromkeys(advantages, sections)
    samples = {
        index: Sample(f"episode {each.replica + 1}", each, None, {}) for index, each in enumerate(imported.trajectories)
    }
    episodes = side_by_side(samples, advantages, rewards)
    return WhatIfResult(
        report,
        episodes,
        [episodes[index] for index in most_different(advantages, groups, shown)],
        paths[0].stem,
        "word" if imported.length_measure == WORDS else "token",
    )


def read_rules(titles: Sequence[str]) -> dict[str, Credit]:
    """Credit rules by their titles: `NAME`, or `NAME OPTION=VALUE ...`. Raises ConfigurationError for an unknown."""
    rules = {}
    for title in titles:
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
        indices = trainable(arrays, None, grouped=estimator.grouped)
        if not indices:
            left_out[title] = "it compares within groups, and no group has two episodes"
            continue
        try:
            batch = CreditBatch.of(arrays.select(indices), rewards)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                advantages[title] = rollout_advantages(indices, batch, credit).by_trajectory()
        except CreditError as error:
            left_out[title] = str(error)
    if not advantages:
        raise ConfigurationError(
            "a rule must be one that can be applied to these rollouts; "
            + "; ".join(f"{title}: {reason}" for title, reason in left_out.items()),
            "TW-no-applicable-rule",
        )
    return advantages, left_out
