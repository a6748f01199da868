"""The horizon: how many turns an episode of training may have, iteration by iteration.

With h_k the limit of iteration k, from 1, and H the world's own limit on turns:

    fixed     h_k = limit
    staged    h_k = limits[s], where s counts the stages that have ended before iteration k
    adaptive  h_(k+1) = min(maximum, h_k + step)   if success has levelled off at h_k and enough episodes end there
                        h_k                          otherwise

`staged` is ScalingInter-RL (AgentGym-RL, arXiv 2509.08755), a function of the iteration alone; with stages of one
length, as there, h_k = limits[min((k - 1) // length, last)]. What differs: each stage may have a length of its own, and
a resumed run continues in the stage of its iteration, where the released code skips one.

`adaptive` is ours. `turnwise.curriculum.plateau` defines "levelled off" and says why the rule waits when episodes are
few. The test compares the last two windows of iterations at the present limit, and at least the `share` of the recent
window's episodes must have been cut off by the limit, unsolved. A limit never shrinks, so growing too early cannot be
undone, while growing late costs some iterations; hence a rule that noise delays. Success at one limit says nothing
about success at another: after each growth the windows start empty.

**Which limit this is.** It counts turns in which the agent acts. It is combined with the limits of the world and of
each task, and the shortest applies: a task whose own limit is below h_k keeps it. The limits on actions, per turn and
per episode, are the world's at every h_k. It applies in training; evaluation is at the full limit and, reported next to
it, at h_k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from turnwise.config.options import read_options
from turnwise.config.quantities import Count, NotNegative, Share, because
from turnwise.config.schema import WorldSection
from turnwise.curriculum.plateau import IterationCounts, has_levelled_off
from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant
from turnwise.world import World, make_world, world_class

SCHEDULES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "webarena": ((8, 12, 15), 80),
    "search": ((5, 8, 10), 100),
    "textcraft": ((10, 20, 30), 100),
    "babyai": ((6, 13, 20), 100),
    "sciworld": ((10, 20, 30), 100),
}
"""AgentGym-RL's published schedules by environment: the limits in turns, and the iterations of every stage but the
last, which runs to the end."""


@dataclass(frozen=True)
class HorizonState:
    """The state of a curriculum between two iterations."""

    limit: int
    """The limit of the next iteration, in turns."""
    batches: tuple[IterationCounts, ...] = ()
    """The iterations played at this limit, latest last, as far back as the rule looks."""


class Curriculum(ABC):
    """A rule by which the limit on turns grows. All methods are pure; limits are in turns."""

    @property
    @abstractmethod
    def shortest(self) -> int:
        """The limit of the first iteration."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest limit that it can reach."""

    @abstractmethod
    def next(self, state: HorizonState, iteration: int, batch: IterationCounts) -> HorizonState:
        """The state after `iteration`, whose episodes were played at `state.limit`."""

    @abstractmethod
    def require_iterations(self, iterations: int) -> None:
        """Raise ConfigurationError if a run of `iterations` iterations is too short for what is configured."""

    def first_at(self, iteration: int) -> HorizonState:
        """The state before `iteration`, if nothing is known yet of the iterations before it."""
        state = HorizonState(self.shortest)
        for earlier in range(1, iteration):
            state = self.next(state, earlier, IterationCounts(0, 0, 0))
        return state


@dataclass(frozen=True)
class Staged(Curriculum):
    """Growing limits, one per stage; each stage lasts a number of iterations, the last one to the end of the run.

    A single stage is the same limit at every iteration: the rule `fixed`.
    """

    limits: tuple[int, ...]
    """The limit of each stage, in turns."""
    lengths: tuple[int, ...] = ()
    """Iterations of every stage but the last."""

    @property
    def shortest(self) -> int:
        """The limit of the first stage."""
        return self.limits[0]

    @property
    def longest(self) -> int:
        """The limit of the last stage."""
        return self.limits[-1]

    def next(self, state: HorizonState, iteration: int, batch: IterationCounts) -> HorizonState:
        """The limit of the next iteration; the episodes of this one are not looked at."""
        return HorizonState(self.limits[sum(iteration >= end for end in accumulate(self.lengths))])

    def require_iterations(self, iterations: int) -> None:
        """Raise ConfigurationError if the run ends before the last stage."""
        if sum(self.lengths) >= iterations:
            raise ConfigurationError(
                f"every stage of the curriculum must be reached: the lengths {list(self.lengths)} of those before the "
                f"last must sum to less than optimization.iterations; found {sum(self.lengths)} and {iterations}: "
                "shorten the stages, or train for longer",
                "TW-curriculum-unreached",
            )


@dataclass(frozen=True)
class Adaptive(Curriculum):
    """The limit grows when success has levelled off and enough episodes end at it: see the head of this file."""

    first_limit: int
    maximum: int
    step: int
    """Turns by which the limit grows."""
    window: int
    """Iterations of each of the two windows that are compared."""
    tolerance: float
    """The largest gain in success rate, from window to window, that counts as level."""
    standard_errors: float
    """Standard errors added to the measured gain before it is compared; `docs/plateau.md` says why two."""
    share: float
    """The share of the recent window's episodes that must have ended at the limit."""

    def __post_init__(self) -> None:
        if self.first_limit >= self.maximum:
            raise ConfigurationError(
                "an adaptive curriculum must begin below its maximum, or it can never grow; found first: "
                f"{self.first_limit} and maximum: {self.maximum}: lower the first, or set rule to 'fixed'",
                "TW-curriculum-order",
            )

    @property
    def shortest(self) -> int:
        """The limit of the first iteration."""
        return self.first_limit

    @property
    def longest(self) -> int:
        """The maximum."""
        return self.maximum

    def next(self, state: HorizonState, iteration: int, batch: IterationCounts) -> HorizonState:
        """The state with a larger limit and no batches, or with this batch added; an empty batch changes nothing."""
        if not batch.episodes:
            return state
        batches = (*state.batches, batch)[-2 * self.window :]
        if state.limit < self.maximum and self.has_levelled_off(batches) and self.enough_at_limit(batches):
            return HorizonState(min(self.maximum, state.limit + self.step))
        return HorizonState(state.limit, batches)

    def has_levelled_off(self, batches: Sequence[IterationCounts]) -> bool:
        """Whether success at the present limit has levelled off; False before there are two full windows."""
        if len(batches) < 2 * self.window:
            return False
        earlier, recent = batches[-2 * self.window : -self.window], batches[-self.window :]
        return has_levelled_off(earlier, recent, tolerance=self.tolerance, standard_errors=self.standard_errors)

    def enough_at_limit(self, batches: Sequence[IterationCounts]) -> bool:
        """Whether the limit cut off enough of the recent window's episodes, so that a longer limit would matter."""
        recent = batches[-self.window :]
        return sum(batch.at_limit for batch in recent) >= self.share * sum(batch.episodes for batch in recent)

    def require_iterations(self, iterations: int) -> None:
        """Raise ConfigurationError if the run ends before the limit can grow once."""
        if 2 * self.window >= iterations:
            raise ConfigurationError(
                "an adaptive curriculum compares two windows before it grows: twice the window must be less than "
                f"optimization.iterations; found window: {self.window} and {iterations} iterations: shorten the "
                "window, or train for longer",
                "TW-curriculum-unreached",
            )


def make_curriculum(rule: str, options: Mapping[str, Any], turns: int) -> Curriculum:
    """The curriculum of a configuration, in a world whose limit is `turns`.

    Raises ConfigurationError for an unknown rule or option, and for limits that are above the world's.
    """
    if rule not in RULES:
        raise ConfigurationError(
            f"curriculum.rule must be one of {', '.join(RULES)}; found {rule!r}{meant(rule, RULES)}",
            "TW-unknown-rule",
        )
    try:
        arguments = read_options(rule, RULES[rule], options)
    except ConfigurationError as error:
        raise ConfigurationError(f"curriculum.options: {error}") from None
    curriculum = RULES[rule](turns, **arguments)
    if curriculum.longest > turns:
        raise ConfigurationError(
            f"a curriculum's limits must not be above the world's, which allows {turns} turns; found "
            f"{curriculum.longest}: lower it, or raise the world's parameter `turns`",
            "TW-limit-above-world",
        )
    return curriculum


def require_playable(curriculum: Curriculum, iterations: int, section: WorldSection, world: World) -> None:
    """Raise ConfigurationError for stages that training never reaches, or a limit that the world does not accept."""
    curriculum.require_iterations(iterations)
    if curriculum.shortest == world.limits.turns or "turns" not in signature(world_class(section.name)).parameters:
        return
    try:
        make_world(section.name, {**section.parameters, "turns": curriculum.shortest})
    except ValueError as error:
        raise ConfigurationError(
            f"a curriculum's limits must be ones that the world {world.name!r} can be played under; found "
            f"{curriculum.shortest}, of which it says: {error}",
            "TW-limit-above-world",
        ) from error


def _fixed(turns: int, *, limit: Count | None = None) -> Staged:
    return Staged((turns if limit is None else limit,))


def _require_lengths(lengths: Any) -> Any:
    if not all(isinstance(each, int) and each is not True and each >= 1 for each in _listed(lengths)):
        raise ConfigurationError(
            "must be a number of iterations of at least 1, or a list of one for each stage but the last",
            "TW-curriculum-lengths",
        )
    return lengths


def _listed(lengths: Any) -> list[Any]:
    return list(lengths) if isinstance(lengths, list | tuple) else [lengths]


def _staged(
    turns: int,
    *,
    limits: Annotated[tuple[Count, ...], Field(strict=False)] | None = None,
    lengths: Annotated[Any, AfterValidator(_require_lengths)] = None,
    schedule: Literal["webarena", "search", "textcraft", "babyai", "sciworld"] | None = None,
) -> Staged:
    if (schedule is None) == (limits is None):
        raise ConfigurationError(
            "a staged curriculum must have either limits of its own or a published schedule, one of "
            f"{', '.join(SCHEDULES)}; found {'neither' if limits is None else 'both'}",
            "TW-curriculum-schedule",
        )
    if schedule is not None:
        limits, published = SCHEDULES[schedule]
        lengths = published if lengths is None else lengths
    assert limits is not None
    if lengths is None:
        raise ConfigurationError(
            "curriculum.options.lengths must be a number of iterations, or a list of one for each stage but the last; "
            "found None",
            "TW-curriculum-lengths",
        )
    each = _listed(lengths)
    each = each if isinstance(lengths, list | tuple) else each * (len(limits) - 1)
    if len(limits) < 2 or any(later <= earlier for earlier, later in pairwise(limits)):
        raise ConfigurationError(
            f"the limits of a staged curriculum must grow from stage to stage, with two stages at least; found "
            f"{list(limits)}: put them in order, or set rule to 'fixed' for a single one",
            "TW-curriculum-order",
        )
    if len(each) != len(limits) - 1:
        raise ConfigurationError(
            f"every stage but the last, which goes on to the end, must have a length; found {len(limits)} limits and "
            f"the lengths {each}: give one number for all, or {len(limits) - 1}",
            "TW-curriculum-lengths",
        )
    return Staged(tuple(limits), tuple(each))


_MORE_THAN_ONE = because("one value has no spread")


def _adaptive(
    turns: int,
    *,
    first: Count,
    maximum: Count | None = None,
    step: Count = 1,
    window: Annotated[int, Field(ge=2, le=1_000_000), _MORE_THAN_ONE] = 5,
    tolerance: Annotated[Share, Field(gt=0.0, lt=1.0)] = 0.05,
    standard_errors: NotNegative = 2.0,
    share: Annotated[Share, Field(gt=0.0)] = 0.2,
) -> Adaptive:
    longest = turns if maximum is None else maximum
    return Adaptive(first, longest, step, window, tolerance, standard_errors, share)


RULES: Mapping[str, Callable[..., Curriculum]] = {"fixed": _fixed, "staged": _staged, "adaptive": _adaptive}
"""By rule, the function that makes its curriculum from the world's limit and the options, its keyword parameters.
Without options, `fixed` uses the world's own limit."""
