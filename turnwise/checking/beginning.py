"""The check whether reinforcement could begin from random play; a world where it could not gets a warning."""

from __future__ import annotations

from turnwise.checking.baselines import weighted_return
from turnwise.checking.report import Doubtful
from turnwise.checking.subject import Subject
from turnwise.statistics.group_spread import expected_spread

GROUPS, GROUP_SIZE = 8, 8
"""Test tasks on which the random policy is played, and its episodes of each: groups of the size that training has by
default."""


def random_play_earns_differences(subject: Subject) -> str:
    """Warn where no group of random episodes of the same task differs in its rewards, by the world's own weights."""
    groups = subject.random_groups(GROUPS, GROUP_SIZE)
    returns = [[weighted_return(subject.world, episode) for episode in group] for group in groups]
    differing = expected_spread(returns, GROUP_SIZE).most
    success = sum(episode.success for group in groups for episode in group) / (len(groups) * GROUP_SIZE)
    found = f"mean success {success:.2f}; rewards differ within {differing:.0%} of {len(groups)} groups of {GROUP_SIZE}"
    if differing:
        return found
    raise Doubtful(
        f"{found}: a policy that plays like the random baseline never earns a difference, so it must begin with "
        "demonstrations (warm_start) or an easier parameter"
    )
