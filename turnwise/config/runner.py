"""The key `compute.runner`: who makes the runs of an ablation.

local        this process, one run after the other
processes    `workers` processes of this machine, this one included
ray          the workers of a Ray cluster, each run with `cores`, `cards` and `memory_gib` of its own

No result depends on it, so it is part of no cache key and no digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.model_settings import Compute
from turnwise.config.quantities import NotNegative, Positive, Processes
from turnwise.config.schema import Section
from turnwise.errors import ConfigurationError

READ_BY: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "processes": ("workers",),
    "ray": ("address", "cores", "cards", "memory_gib"),
}
"""The keys that each kind of runner reads, besides its kind."""


class Runner(Section):
    """Who makes the runs of an ablation, and with what."""

    kind: Literal["local", "processes", "ray"] = "processes"
    """`local`: one process, one run after the other. `processes`: several of this machine. `ray`: a cluster."""
    workers: Processes = 1
    """Of `processes`: how many share the runs, this one included. Where there are more of them than runs, the others
    sample ahead (`rollout.lag`)."""
    address: str | None = None
    """Of `ray`: `auto` for the cluster that this machine is part of, `HOST:PORT` of its head, `ray://HOST:PORT` from
    outside of it, or `local` for a cluster of this machine alone, for as long as the ablation takes."""
    cores: Positive = 1.0
    """Of `ray`: the processor cores that one run takes."""
    cards: NotNegative = 0.0
    """Of `ray`: the graphics cards that one run takes; 0.5: two runs share one."""
    memory_gib: Positive | None = None
    """Of `ray`: the memory that one run takes, in GiB; null: it is not counted."""

    @field_validator("address")
    @classmethod
    def _require_address(cls, address: str | None) -> str | None:
        known = address in (None, "auto", "local")
        if not known and not (address and ":" in address and not any(each.isspace() for each in address)):
            raise ConfigurationError("must be auto, local, HOST:PORT or ray://HOST:PORT", "TW-address-form")
        return address

    @model_validator(mode="after")
    def _require_own_keys(self) -> Self:
        own_keys = READ_BY[self.kind]
        for key in sorted(self.model_fields_set - {"kind", *own_keys}):
            if getattr(self, key) != type(self).model_fields[key].default:
                reader = next(kind for kind, keys in READ_BY.items() if key in keys)
                raise ConfigurationError(
                    f"must not have {key}, which kind {reader} reads; found kind {self.kind}", "TW-unread-option"
                )
        if self.kind == "ray" and self.address is None:
            raise ConfigurationError(
                "must have address for kind ray: auto, local, HOST:PORT or ray://HOST:PORT; found none",
                "TW-missing-option",
            )
        return self

    def with_processes(self, processes: int | None) -> Runner:
        """The runner, or so many processes where the command line says a number.

        Raises ConfigurationError where the runs are made by a cluster, which has no such number.
        """
        if processes is None:
            return self
        if self.kind == "ray":
            raise ConfigurationError(
                f"--processes must be left out where compute.runner is ray, which makes as many runs at once as the "
                f"cluster has room for; found --processes {processes}: set compute.runner.cores, cards or memory_gib, "
                "or -s compute.runner.kind=processes",
                "TW-unread-option",
            )
        return Runner(kind="processes", workers=processes)

    def require_cards(self, device: str, run_cards: int = 1) -> None:
        """Raise ConfigurationError where a run that takes so many cards would get fewer of the cluster."""
        if self.kind == "ray" and device != "cpu" and self.cards < run_cards > 1:
            raise ConfigurationError(
                f"compute.runner.cards must be at least the cards that a run takes, {run_cards}, by "
                "compute.learner_processes, compute.engines, compute.tensor_parallel and compute.engines_apart; found "
                f"{self.cards:g}: raise it",
                "TW-too-few-cards",
            )
        if self.kind == "ray" and device != "cpu" and not self.cards:
            raise ConfigurationError(
                f"compute.runner.cards must be above 0 where compute.device is {device}, since Ray hides all cards "
                "from a run that asks for none; found 0: set it to 1, or to 0.5 where two runs share a card",
                "TW-too-few-cards",
            )

    @property
    def processes(self) -> int:
        """How many processes of this machine share the runs, this one included."""
        return self.workers if self.kind == "processes" else 1


class ComputeSection(Compute):
    """Where and how the policy is sampled and trained, and by which processes. Stages read all but `runner`."""

    runner: Annotated[Runner, Field(exclude=True)] = Runner()
    """Excluded from all that is recorded and compared: the results are the same whoever made them."""
