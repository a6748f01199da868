"""Prompt selection: which groups of a batch are trained on, by the deviation of their rewards.

A group is the trajectories of one task; its deviation is that of their **raw** weighted rewards, turn rewards and
outcome added up. (RAGEN's released filter read rewards that GRPO had already normalised, whose deviation is 1 in every
group that is not zero-variance.) With d_g the deviation of group g:

    all          every group
    uncertainty  the share of groups whose d_g is largest, a quarter: StarPO-S (RAGEN, arXiv 2504.20073, section 4.1)
    cumulative   the smallest set with sum of d_g >= 0.9 of the sum over all, zeros dropped: RAGEN-2 (arXiv 2604.06268)
    random       as many groups as `uncertainty` keeps, drawn at random: its control
    mixed        groups with d_g > 0, up to the number wanted; more are sampled to replace the rest: DAPO
                 (arXiv 2503.14476, eq. 11)

Differs from the papers: groups of equal deviation are taken in the order of the batch, so that the same batch gives the
same selection; DAPO's condition, neither all right nor all wrong, is extended to rewards other than 0 and 1.
`uncertainty` keeps its share even if that includes zero-variance groups, as the release does: their number is recorded.

`cumulative` stops at 0.9 of the sum, as the paper's equation; RAGEN-2's release stops 0.01 before it.

Keeping a quarter of the groups also leaves a quarter of the optimizer steps where mini-batches have a fixed size:
compare with `random`, and at equal updates.
"""

from __future__ import annotations

import inspect
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from turnwise.config.options import read_options
from turnwise.data.arrays import TrajectoryArrays
from turnwise.data.tolerance import alike
from turnwise.errors import ConfigurationError, ContractError
from turnwise.plugins import SELECTION_RULE, plugin
from turnwise.seeding import generator
from turnwise.world import quoted

SELECTION = "selection 1"
"""The layout of the file. It is in the cache key of who writes it: a changed layout gets another number."""
SELECTION_FILE = "selection.json"
Deviations = Mapping[int, float]
"""The deviation of each group's rewards, by group, in the order of the batch."""

ShareOfGroups = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
MAXIMUM_ROUNDS = 3
"""Default limit on the sampling rounds of `mixed`, the first round included."""


@dataclass(frozen=True)
class Selection:
    """Which groups are trained on. `kept` and `dropped` are in the order of the batch."""

    deviations: Deviations
    kept: tuple[int, ...]
    missing: int = 0
    """How many more groups are wanted; above 0 only with `mixed`."""

    @property
    def dropped(self) -> tuple[int, ...]:
        """The groups that are left out of the update."""
        retained = frozenset(self.kept)
        return tuple(group for group in self.deviations if group not in retained)

    def record(self) -> dict[str, float]:
        """The metrics that are logged: counts of groups, and the mean deviation of the kept and of the dropped ones."""
        kept, dropped = ([self.deviations[group] for group in groups] for groups in (self.kept, self.dropped))
        total = math.fsum(self.deviations.values())
        return {
            "groups_sampled": float(len(self.deviations)),
            "groups_kept": float(len(kept)),
            "groups_dropped": float(len(dropped)),
            "groups_missing": float(self.missing),
            "groups_without_spread": float(sum(deviation == 0.0 for deviation in self.deviations.values())),
            "kept_without_spread": float(sum(deviation == 0.0 for deviation in kept)),
            **({"kept_deviation": math.fsum(kept) / len(kept)} if kept else {}),
            **({"dropped_deviation": math.fsum(dropped) / len(dropped)} if dropped else {}),
            **({"kept_share_of_deviation": math.fsum(kept) / total} if total else {}),
        }


def write_selection(folder: Path, selection: Selection) -> None:
    """Write a selection into `folder`."""
    content = {
        "kept": list(selection.kept),
        "missing": selection.missing,
        "deviations": {str(group): deviation for group, deviation in selection.deviations.items()},
    }
    (folder / SELECTION_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_selection(folder: Path) -> Selection:
    """The selection that `write_selection` wrote into `folder`."""
    content = json.loads((folder / SELECTION_FILE).read_text(encoding="utf-8"))
    deviations = {int(group): deviation for group, deviation in content["deviations"].items()}
    return Selection(deviations, tuple(content["kept"]), content["missing"])


def group_deviations(group: Sequence[int], rewards: Sequence[float]) -> dict[int, float]:
    """The unbiased deviation of each group's raw weighted rewards, in the order in which the groups appear.

    `group` and `rewards` have one entry per trajectory. A group of one gets 0. Rewards that are equal but for rounding
    give exactly 0.
    """
    members: dict[int, list[float]] = {}
    for name, reward in zip(group, rewards, strict=True):
        members.setdefault(name, []).append(reward)
    return {
        name: 0.0 if alike(rewards_of_group) else statistics.stdev(rewards_of_group)
        for name, rewards_of_group in members.items()
    }


def trainable(trajectories: TrajectoryArrays, groups: Collection[int] | None, *, grouped: bool) -> list[int]:
    """The indices of the trajectories to train on: those with a trained reply, in one of the `groups` (None: all).

    `grouped` leaves out a trajectory that is the only such one of its group, and has none to be compared with.
    """
    with_replies = np.flatnonzero(trajectories.sums(trajectories.trained)).tolist()
    group = trajectories.group.tolist()
    sizes = Counter(group[index] for index in with_replies)
    return [
        index
        for index in with_replies
        if (sizes[group[index]] > 1 or not grouped) and (groups is None or group[index] in groups)
    ]


def select(name: str, deviations: Deviations, *, seed: int, wanted: int | None = None, **options: Any) -> Selection:
    """The groups that the named rule keeps.

    `seed` is that of the iteration; only `random` uses it. `wanted` is the number of groups that `mixed` is to reach;
    None: the number of groups in `deviations`. Raises ConfigurationError for an unknown name or option, ContractError
    for a plug-in that keeps something else, and ValueError for a deviation that is negative or not finite.
    """
    require_selection(name, options)
    for group, deviation in deviations.items():
        if not (math.isfinite(deviation) and deviation >= 0):
            raise ValueError(f"a group's deviation must be a number from 0 up; group {group} has {deviation}")
    selected = rule_of(name)(deviations, seed, **options)
    groups = tuple(selected) if name in RULES else _require_groups(name, deviations, selected)
    wanted = len(deviations) if wanted is None else wanted
    if name != "mixed":
        return Selection(deviations, groups)
    return Selection(deviations, groups[:wanted], missing=max(0, wanted - len(groups)))


def require_selection(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless `name` is a rule that has these `options` and accepts their values."""
    read_options(name, rule_of(name), options)


def rule_of(name: str) -> Callable[..., Sequence[int]]:
    """The rule of a name: one of `RULES`, or a plug-in (`turnwise.plugins`).

    A rule takes the deviations, the seed of the iteration, and its options as keywords, and returns the groups to keep.
    Raises ConfigurationError where there is none.
    """
    if name in RULES:
        return RULES[name]
    loaded = plugin(SELECTION_RULE, "the selection", name, [*RULES])
    if not inspect.isfunction(loaded):
        raise ConfigurationError(
            f"the selection {name!r} must name a function from deviations and a seed to the groups to keep; "
            f"found {loaded!r}",
            "TW-plugin-kind",
        )
    rule: Callable[..., Sequence[int]] = loaded
    return rule


def _require_groups(name: str, deviations: Deviations, selected: Any) -> tuple[int, ...]:
    """What a plug-in keeps, in the order of the batch. Raises ContractError for a group that there is not, or twice."""
    groups = list(selected) if isinstance(selected, Iterable) else None
    known = list(deviations)
    if groups is None or any(group not in known or groups.count(group) > 1 for group in groups):
        raise ContractError(
            f"the selection {name!r} must keep groups of the batch, each once; of {known} it keeps "
            f"{quoted(selected if groups is None else groups)}",
            "TW-answer-type",
        )
    return _in_order(deviations, groups)


def _all(deviations: Deviations, seed: int) -> tuple[int, ...]:
    return tuple(deviations)


def _uncertainty(deviations: Deviations, seed: int, *, share: ShareOfGroups = 0.25) -> tuple[int, ...]:
    return _in_order(deviations, _by_deviation(deviations)[: _count(deviations, share)])


def _cumulative(deviations: Deviations, seed: int, *, share: ShareOfGroups = 0.9) -> tuple[int, ...]:
    # Exact arithmetic: 9 of 10 equal deviations are 0.9 of their sum, which is false in floating point for some values.
    exact = {group: Fraction(deviation) for group, deviation in deviations.items()}
    enough, reached, selected = Fraction(str(share)) * sum(exact.values()), Fraction(0), []
    for group in _by_deviation(deviations):
        if reached >= enough:
            break
        selected.append(group)
        reached += exact[group]
    return _in_order(deviations, selected)


def _random(deviations: Deviations, seed: int, *, share: ShareOfGroups = 0.25) -> tuple[int, ...]:
    groups = list(deviations)
    places = generator(seed, "selection").permutation(len(groups))[: _count(deviations, share)]
    return _in_order(deviations, [groups[place] for place in places])


def _mixed(
    deviations: Deviations, seed: int, *, maximum_rounds: Annotated[int, Field(ge=1, le=1000)] = MAXIMUM_ROUNDS
) -> tuple[int, ...]:
    return tuple(group for group, deviation in deviations.items() if deviation > 0)


def _count(deviations: Deviations, share: float) -> int:
    """The number of groups in a share: rounded down, as in the release, but at least 1 where there are any."""
    return min(len(deviations), max(1, math.floor(Fraction(str(share)) * len(deviations))))


def _by_deviation(deviations: Deviations) -> list[int]:
    """The groups by deviation, largest first; equal ones in the order of the batch, since sorting is stable."""
    return sorted(deviations, key=lambda group: -deviations[group])


def _in_order(deviations: Deviations, groups: Sequence[int]) -> tuple[int, ...]:
    members = frozenset(groups)
    return tuple(group for group in deviations if group in members)


RULES: Mapping[str, Callable[..., tuple[int, ...]]] = {
    "all": _all,
    "uncertainty": _uncertainty,
    "cumulative": _cumulative,
    "random": _random,
    "mixed": _mixed,
}
"""The rules by name. Options are keyword arguments; only `random` reads the seed."""
