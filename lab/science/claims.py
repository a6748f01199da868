"""Claims of a paper, stated in a file before anything is run: `experiments/claims/<page>.yaml`.

A claim lists one or more relations, all of which must hold. A relation names an ablation, a measure, and how variants
must compare, or how a variant's own curves must move.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from turnwise.config.messages import explain
from turnwise.config.overlays import read_yaml
from turnwise.config.schema import Section
from turnwise.errors import ConfigurationError
from turnwise.project import project_root
from turnwise.suggestions import meant

CLAIMS = Path("experiments/claims")

Relation = Literal["above", "below", "varies less than", "rises", "falls", "falls before"]
COMPARING: tuple[Relation, ...] = ("above", "below", "varies less than")
"""Relations between two variants; the others are within the runs of one variant."""
OF_MEANS: tuple[Relation, ...] = ("above", "below", "rises", "falls")
"""Relations whose test is of a mean difference, which can be worth having."""


class Relationship(Section):
    """One relation that must hold: `variant` is `relation` `than` in `measure`; or, in its own runs, `measure` rises,
    falls, or falls before `later` does.
    """

    ablation: str
    variant: str
    relation: Relation
    than: str | None = None
    """The variant that it is compared with; null for relations within the runs of one."""
    other: str | None = None
    """The ablation of `than`, where it is another one; its runs with the same seeds are the counterparts."""
    measure: str
    """The heading of a column of the final table, or the metric of a curve, whose last value counts."""
    later: str | None = None
    """Of `falls before`: the metric of the curve that falls after that of `measure`. A curve has fallen once it lies
    below half of its first value."""

    @model_validator(mode="after")
    def _require_a_counterpart(self) -> Relationship:
        if (self.relation in COMPARING) != (self.than is not None):
            raise ValueError(f"{', '.join(COMPARING)} are relations to another variant, `than`; the others are not")
        if (self.relation == "falls before") != (self.later is not None):
            raise ValueError("`falls before` is a relation to another measure, `later`; the others are not")
        if self.other is not None and self.than is None:
            raise ValueError("`other` is the ablation of `than`, which is missing")
        return self

    @property
    def upwards(self) -> bool:
        """Whether a positive difference is on the claimed side."""
        return self.relation in ("above", "rises", "falls before")

    @property
    def ablations(self) -> tuple[str, ...]:
        """The names of all ablations whose runs the relation needs."""
        return (self.ablation,) if self.other is None else (self.ablation, self.other)

    @property
    def sentence(self) -> str:
        """The relation as text, e.g. `mt-grpo above grpo`."""
        return " ".join(each for each in (self.variant, self.relation, self.than or self.later) if each)

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures that the relation needs."""
        return (self.measure,) if self.later is None else (self.measure, self.later)


class Claim(Section):
    """A sentence of a paper, and the relations that must all hold for it to hold here."""

    claim: str
    source: str
    """Where the paper says it."""
    relations: Annotated[tuple[Relationship, ...], Field(strict=False, min_length=1)]


class PlannedPower(Section):
    """The power analysis of a measure, written down before the runs: see `turnwise.statistics.power`."""

    measure: str
    worth_having: Annotated[float, Field(gt=0)]
    """The smallest difference that matters, in the unit of the measure."""
    deviation: Annotated[float, Field(gt=0)]
    """Of the differences between two variants over the seeds of a pilot."""
    pilot: str
    """What the pilot was: its seeds and its task set, which are not those that decide, and its length."""


class PlannedAblation(Section):
    """An ablation that the page is about."""

    overlays: Annotated[tuple[str, ...], Field(strict=False)]
    """Files laid over params.yaml, from the project's root."""
    core: bool
    """Whether it is part of the core, which a laptop ends within about two hours."""
    about: str
    """What it adds, in a sentence."""
    tunes: str | None = None
    """The ablation whose learning rates it chooses: see `lab.science.tuning`."""
    power: Annotated[tuple[PlannedPower, ...], Field(strict=False)] = ()
    """The power analysis of each measure that a claim needs."""

    @property
    def command(self) -> str:
        """The command line that runs it."""
        return " ".join(["turnwise ablation", *self.overlays])


class ClaimsPage(Section):
    """One page of `docs/science/`."""

    title: str
    paper: str
    introduction: str
    ablations: dict[str, PlannedAblation]
    """By the name that the ablation has in its own parameters."""
    curves: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Metrics that the figure of each ablation shows, in order."""
    claims: Annotated[tuple[Claim, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _require_known_ablations(self) -> ClaimsPage:
        for name, planned in self.ablations.items():
            if planned.tunes is not None and planned.tunes not in self.ablations:
                raise ValueError(
                    f"what {name!r} tunes must be one of {', '.join(self.ablations)}; found {planned.tunes!r}"
                )
        for claim in self.claims:
            for relationship in claim.relations:
                for ablation in relationship.ablations:
                    if ablation not in self.ablations:
                        raise ValueError(
                            f"the ablation of a relation must be one of {', '.join(self.ablations)}; found "
                            f"{ablation!r} in the claim {claim.claim!r}"
                        )
        return self

    def worth_having(self, relationship: Relationship) -> float | None:
        """The smallest difference that matters for a relation of means, where its ablation states one; else None."""
        if relationship.relation not in OF_MEANS:
            return None
        powers = self.ablations[relationship.ablation].power
        return next((each.worth_having for each in powers if each.measure == relationship.measure), None)


def known_claims(name: str) -> ClaimsPage:
    """The claims of a page of this project. Raises ConfigurationError for an unknown page, listing the known ones."""
    path = project_root() / CLAIMS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(each.stem for each in path.parent.glob("*.yaml"))
        raise ConfigurationError(
            f"a page must be one of {', '.join(known) or 'none'} (in {CLAIMS}); found {name!r}{meant(name, known)}",
            "TW-unknown-page",
        )
    return read_claims(path)


def read_claims(path: Path) -> ClaimsPage:
    """The claims in a YAML file. Raises ConfigurationError if its content is not valid."""
    try:
        return ClaimsPage.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {explain(error, ClaimsPage)}") from None
